package kube

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
)

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
