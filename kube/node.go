package kube

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// NodeLost reports whether the cluster has given up hearing from the node's kubelet, and since when. What
// runs on the node may go on all the same: nothing tells a node that is off from one that is cut off.
func NodeLost(node *corev1.Node) (since time.Time, silent bool) {
	ready := readyCondition(node)
	if ready == nil || ready.Status != corev1.ConditionUnknown {
		return time.Time{}, false
	}
	return ready.LastTransitionTime.Time, true
}

// OutOfService reports whether the operator has said that the node is off. As for Kubernetes itself, that
// counts only as long as the node is not ready: the taint may have been forgotten on one that came back.
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
