package kube

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

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
