package kube

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// UnschedulableReason returns why the scheduler found no node for the Pod, or "". It ignores scheduling gates.
func UnschedulableReason(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason != corev1.PodReasonSchedulingGated {
			return c.Message
		}
	}
	return ""
}

// WaitsForNode reports whether the Pod waits for a suitable node, and not for the creation or binding of a PVC.
func WaitsForNode(pod *corev1.Pod) bool {
	reason := UnschedulableReason(pod)
	return reason != "" && !strings.Contains(reason, "ephemeral volume controller") && !HasUnboundPVC(pod)
}

// HasUnboundPVC reports whether the Pod waits for a PVC that is bound before a node is chosen (volumeBindingMode Immediate).
func HasUnboundPVC(pod *corev1.Pod) bool {
	return strings.Contains(UnschedulableReason(pod), "unbound immediate PersistentVolumeClaim")
}

// VolumeNodeConflict returns the scheduler's message if a Pod that can run on one node only waits for a volume that is not available
// on that node. Otherwise it returns "".
func VolumeNodeConflict(pod *corev1.Pod) string {
	reason := UnschedulableReason(pod)
	if slices.ContainsFunc([]string{
		"didn't match PersistentVolume's node affinity", // the volume is available on other nodes
		"volume node affinity conflict",                 // the same in older schedulers
		"didn't find available persistent volumes to bind",
	}, func(phrase string) bool { return strings.Contains(reason, phrase) }) {
		return reason
	}
	return ""
}

// InsufficientCapacity returns the scheduler's message if the Pod waits for capacity on an otherwise suitable node. Otherwise it
// returns "".
func InsufficientCapacity(pod *corev1.Pod) string {
	reason := UnschedulableReason(pod)
	if slices.ContainsFunc([]string{"Insufficient ", "Too many pods", "exceed max volume count"},
		func(phrase string) bool { return strings.Contains(reason, phrase) }) {
		return reason
	}
	return ""
}
