package kube

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// NodeLost reports whether, and since when, the node's kubelet no longer reports to the cluster (the condition Ready is Unknown).
// The node's Pods may still run: the cluster cannot distinguish a node that is off from a disconnected one.
func NodeLost(node *corev1.Node) (since time.Time, lost bool) {
	ready := readyCondition(node)
	if ready == nil || ready.Status != corev1.ConditionUnknown {
		return time.Time{}, false
	}
	return ready.LastTransitionTime.Time, true
}

// NodeReady reports whether the node can start Pods.
func NodeReady(node *corev1.Node) bool {
	ready := readyCondition(node)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// IsOutOfService reports whether an operator declared the node to be off, with the taint node.kubernetes.io/out-of-service. Like
// Kubernetes, it ignores the taint on a ready node, from which the operator may have forgotten to remove it.
func IsOutOfService(node *corev1.Node) bool {
	if NodeReady(node) {
		return false
	}
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

func readyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
