package kube

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

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
