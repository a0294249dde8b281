package kube

import corev1 "k8s.io/api/core/v1"

// bindCompleted is the annotation by which the PersistentVolume controller marks a bound PVC.
const bindCompleted = "pv.kubernetes.io/bind-completed"

// NeverBound reports whether the PVC never had a volume. Any other unbound PVC lost its volume, or waits for an existing volume,
// which may contain data.
func NeverBound(pvc *corev1.PersistentVolumeClaim) bool {
	return pvc.Spec.VolumeName == "" && pvc.Status.Phase != corev1.ClaimLost && !IsBound(pvc)
}

// IsBound reports whether the PVC is bound to its volume.
func IsBound(pvc *corev1.PersistentVolumeClaim) bool { return pvc.Status.Phase == corev1.ClaimBound }

// IsBoundButPending reports whether the PVC is bound to its volume, but its phase, which is updated last, is still Pending.
func IsBoundButPending(pvc *corev1.PersistentVolumeClaim) bool {
	return pvc.Spec.VolumeName != "" && pvc.Annotations[bindCompleted] != "" && pvc.Status.Phase == corev1.ClaimPending
}
