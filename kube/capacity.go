package kube

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
)

// InsufficientCapacity returns the scheduler's message if the Pod waits for capacity on a node that is suitable otherwise; or "".
func InsufficientCapacity(pod *corev1.Pod) string {
	reason := UnschedulableReason(pod)
	if slices.ContainsFunc([]string{"Insufficient ", "Too many pods", "exceed max volume count"},
		func(words string) bool { return strings.Contains(reason, words) }) {
		return reason
	}
	return ""
}

// AutoscalerDecision is what an autoscaler has reported about a Pod that fits on no node.
type AutoscalerDecision struct {
	ScalesUp bool   // it adds a node
	Refusal  string // why it will not add one, or ""
}

// AutoscalerDecisionOf returns the last decision in the events about a Pod, of the cluster autoscaler
// (https://github.com/kubernetes/autoscaler, processors/status/eventing_scale_up_processor.go) or of Karpenter. A refusal during
// the backoff after a failed scale-up counts as ScalesUp: the autoscaler tries again.
func AutoscalerDecisionOf(events []*corev1.Event) (decision AutoscalerDecision) {
	inOrder := slices.Clone(events)
	slices.SortStableFunc(inOrder, func(a, b *corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	for _, event := range inOrder {
		switch event.Reason {
		case "TriggeredScaleUp", "Nominated":
			decision = AutoscalerDecision{ScalesUp: true}
		case "NotTriggerScaleUp":
			if strings.Contains(event.Message, "in backoff") {
				decision = AutoscalerDecision{ScalesUp: true}
				continue
			}
			decision = AutoscalerDecision{Refusal: event.Message}
		}
	}
	return decision
}

// TooLarge returns a resource that the Pod requests more of than any of the nodes has when it is empty, as "NAME: QUANTITY"; or
// "". It compares each resource on its own, and returns "" without nodes.
func TooLarge(pod *corev1.Pod, nodes []*corev1.Node) string {
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
