package manifest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Near makes the machine run only where these volumes can be used, besides what is required of its
// node already: a zonal or node-local volume says in its node affinity from where it can be reached.
func (vm *VM) Near(volumes ...*corev1.PersistentVolume) {
	for _, volume := range volumes {
		if volume.Spec.NodeAffinity != nil && volume.Spec.NodeAffinity.Required != nil {
			vm.Affinity = limit(vm.Affinity, volume.Spec.NodeAffinity.Required.NodeSelectorTerms)
		}
	}
}

// limit returns the affinity with these terms required of the node, besides what it requires already.
func limit(affinity *corev1.Affinity, terms []corev1.NodeSelectorTerm) *corev1.Affinity {
	limited := affinity.DeepCopy()
	if limited == nil {
		limited = &corev1.Affinity{}
	}
	if limited.NodeAffinity == nil {
		limited.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := &limited.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required != nil {
		terms = both((*required).NodeSelectorTerms, terms)
	}
	*required = &corev1.NodeSelector{NodeSelectorTerms: terms}
	return limited
}

// both returns the terms that hold when one of each list holds: a list is an or, a term an and. No
// term stands for any node.
func both(some, others []corev1.NodeSelectorTerm) []corev1.NodeSelectorTerm {
	if len(some) == 0 {
		return others
	}
	if len(others) == 0 {
		return some
	}
	var pairs []corev1.NodeSelectorTerm
	for _, a := range some {
		for _, b := range others {
			pairs = append(pairs, corev1.NodeSelectorTerm{
				MatchExpressions: slices.Concat(a.MatchExpressions, b.MatchExpressions),
				MatchFields:      slices.Concat(a.MatchFields, b.MatchFields),
			})
		}
	}
	return pairs
}
