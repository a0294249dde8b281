package kube

import corev1 "k8s.io/api/core/v1"

// bindCompleted is the annotation by which the PersistentVolume controller marks a bound PVC.
const bindCompleted = "pv.kubernetes.io/bind-completed"

// IsBound reports whether the phase of the PVC, which is updated last, is Bound. Only then can its size and its
// VolumeAttributesClass change.
func IsBound(pvc *corev1.PersistentVolumeClaim) bool { return pvc.Status.Phase == corev1.ClaimBound }

// HasVolume reports whether the PVC is bound to its volume.
func HasVolume(pvc *corev1.PersistentVolumeClaim) bool {
	binding := pvc.Spec.VolumeName != "" && pvc.Annotations[bindCompleted] != "" && pvc.Status.Phase == corev1.ClaimPending
	return binding || IsBound(pvc)
}
