package kube

import corev1 "k8s.io/api/core/v1"

// Bound reports whether the claim has its volume.
func Bound(claim *corev1.PersistentVolumeClaim) bool { return claim.Status.Phase == corev1.ClaimBound }
