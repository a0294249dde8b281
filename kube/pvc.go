package kube

import corev1 "k8s.io/api/core/v1"

// bindCompleted is the annotation with which the PersistentVolume controller marks a PVC that is bound to its volume.
const bindCompleted = "pv.kubernetes.io/bind-completed"

// NeverBound reports whether the PVC has no volume and never had one. Any other PVC that is not bound has lost its volume, or
// waits for the volume that it names, which may contain data.
func NeverBound(pvc *corev1.PersistentVolumeClaim) bool {
	return pvc.Spec.VolumeName == "" && pvc.Status.Phase != corev1.ClaimLost && !Bound(pvc)
}

// Bound reports whether the PVC is bound to its volume.
func Bound(pvc *corev1.PersistentVolumeClaim) bool { return pvc.Status.Phase == corev1.ClaimBound }

// Binding reports whether the PVC is bound to its volume but still has the phase Pending, which is updated last.
func Binding(pvc *corev1.PersistentVolumeClaim) bool {
	return pvc.Spec.VolumeName != "" && pvc.Annotations[bindCompleted] != "" && pvc.Status.Phase == corev1.ClaimPending
}
