package kube

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
)

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

// AutoscalerDecision is the decision of an autoscaler about a Pod that fits on no node.
type AutoscalerDecision struct {
	ScalesUp bool   // the autoscaler adds a node
	Reason   string // why it does not add a node, or ""
}

// AutoscalerDecisionOf returns the last decision in the events about a Pod. It supports the cluster autoscaler
// (https://github.com/kubernetes/autoscaler, processors/status/eventing_scale_up_processor.go) and Karpenter. An autoscaler in its
// backoff after a failed scale-up counts as ScalesUp, because it tries again.
func AutoscalerDecisionOf(events []*corev1.Event) (decision AutoscalerDecision) {
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(a, b *corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	for _, event := range sorted {
		switch event.Reason {
		case "TriggeredScaleUp", "Nominated":
			decision = AutoscalerDecision{ScalesUp: true}
		case "NotTriggerScaleUp":
			if strings.Contains(event.Message, "in backoff") {
				decision = AutoscalerDecision{ScalesUp: true}
				continue
			}
			decision = AutoscalerDecision{Reason: event.Message}
		}
	}
	return decision
}

// UnsatisfiableRequest returns a resource request of the Pod that exceeds the allocatable amount of every node, as
// "NAME: QUANTITY". It returns "" if there is no such request, or if nodes is empty.
func UnsatisfiableRequest(pod *corev1.Pod, nodes []*corev1.Node) string {
	requested := map[corev1.ResourceName]quantity.Quantity{}
	for _, container := range pod.Spec.Containers {
		for name, amount := range container.Resources.Requests {
			sum := requested[name]
			sum.Add(amount)
			requested[name] = sum
		}
	}
	for _, name := range slices.Sorted(maps.Keys(requested)) {
		amount := requested[name]
		fits := func(node *corev1.Node) bool { return amount.Cmp(node.Status.Allocatable[name]) <= 0 }
		if len(nodes) > 0 && !slices.ContainsFunc(nodes, fits) {
			return string(name) + ": " + amount.String()
		}
	}
	return ""
}
