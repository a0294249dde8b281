package kube

import corev1 "k8s.io/api/core/v1"

// bindCompleted is the annotation that a claim has from the moment on at which its volume is its own.
const bindCompleted = "pv.kubernetes.io/bind-completed"

// NeverBound reports whether the claim has no volume and never had one. Any other that is not bound has lost its
// volume, or waits for the one that it names: there may be data in it.
func NeverBound(pvc *corev1.PersistentVolumeClaim) bool {
	return pvc.Spec.VolumeName == "" && pvc.Status.Phase != corev1.ClaimLost && !Bound(pvc)
}

// Bound reports whether the claim has its volume.
func Bound(pvc *corev1.PersistentVolumeClaim) bool { return pvc.Status.Phase == corev1.ClaimBound }

// Binding reports whether the claim has its volume since a moment ago, and its status does not say so yet: that is written last.
func Binding(pvc *corev1.PersistentVolumeClaim) bool {
	return pvc.Spec.VolumeName != "" && pvc.Annotations[bindCompleted] != "" && pvc.Status.Phase == corev1.ClaimPending
}
