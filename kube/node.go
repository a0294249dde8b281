package kube

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// NodeLost reports whether the node's kubelet does not report to the cluster any more (condition Ready is Unknown), and since
// when. The node's Pods may still run: the cluster cannot distinguish a node that is off from one that is cut off.
func NodeLost(node *corev1.Node) (since time.Time, silent bool) {
	ready := readyCondition(node)
	if ready == nil || ready.Status != corev1.ConditionUnknown {
		return time.Time{}, false
	}
	return ready.LastTransitionTime.Time, true
}

// OutOfService reports whether an operator has declared the node to be off, with the taint
// node.kubernetes.io/out-of-service. Like Kubernetes, it ignores the taint of a node that is ready, where it may have been
// forgotten.
func OutOfService(node *corev1.Node) bool {
	ready := readyCondition(node)
	if ready != nil && ready.Status == corev1.ConditionTrue {
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
