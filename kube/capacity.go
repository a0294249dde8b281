package kube

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
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

// UnsatisfiableRequest returns a resource request of the Pod that exceeds the allocatable amount of every node, and the largest such
// amount, as in "cpu: 8, and the largest node has 4". It returns "" if there is no such request, or if nodes is empty.
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
		amount, largest := requested[name], quantity.Quantity{}
		for _, node := range nodes {
			if allocatable := node.Status.Allocatable[name]; allocatable.Cmp(largest) > 0 {
				largest = allocatable
			}
		}
		if len(nodes) > 0 && amount.Cmp(largest) > 0 {
			return string(name) + ": " + amount.String() + ", and the largest node has " + largest.String()
		}
	}
	return ""
}

// UnmatchedPlacement returns the requirement of the Pod's node selector or node affinity for which no node matches the Pod, for example
// "the node label topology.kubernetes.io/zone=z9, which no node has". It returns "" if a node matches, or if nodes is empty.
func UnmatchedPlacement(pod *corev1.Pod, nodes []*corev1.Node) string {
	if len(nodes) == 0 || matchesAny(&pod.Spec, nodes) {
		return ""
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		label := map[string]string{key: pod.Spec.NodeSelector[key]}
		if !matchesAny(&corev1.PodSpec{NodeSelector: label}, nodes) {
			return "the node label " + key + "=" + label[key] + ", which no node has"
		}
	}
	if !matchesAny(&corev1.PodSpec{Affinity: pod.Spec.Affinity}, nodes) {
		return "a node affinity that no node matches: " + describeNodeAffinity(pod.Spec.Affinity)
	}
	if !matchesAny(&corev1.PodSpec{NodeSelector: pod.Spec.NodeSelector}, nodes) {
		return "the node labels " + labels.FormatLabels(pod.Spec.NodeSelector) + ", which no node has together"
	}
	return "the node labels " + labels.FormatLabels(pod.Spec.NodeSelector) + ", which no node has that matches the node affinity: " +
		describeNodeAffinity(pod.Spec.Affinity)
}

// matchesAny reports whether a node matches the node selector and the required node affinity.
func matchesAny(spec *corev1.PodSpec, nodes []*corev1.Node) bool {
	required := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec})
	return slices.ContainsFunc(nodes, func(node *corev1.Node) bool {
		matches, err := required.Match(node)
		return matches || err != nil // the API server accepted it: the scheduler decides
	})
}

// describeNodeAffinity formats the required node affinity, for example "zone In [a b], disk Exists; or zone In [c]".
func describeNodeAffinity(affinity *corev1.Affinity) string {
	return DescribeNodeSelector(affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
}

// DescribeNodeSelector formats the node selector, for example "zone In [a b], disk Exists; or zone In [c]".
func DescribeNodeSelector(selector *corev1.NodeSelector) string {
	var terms []string
	for _, term := range selector.NodeSelectorTerms {
		var requirements []string
		for _, requirement := range slices.Concat(term.MatchExpressions, term.MatchFields) {
			text := requirement.Key + " " + string(requirement.Operator)
			if len(requirement.Values) > 0 {
				text += fmt.Sprintf(" %v", requirement.Values)
			}
			requirements = append(requirements, text)
		}
		terms = append(terms, strings.Join(requirements, ", "))
	}
	return strings.Join(terms, "; or ")
}
