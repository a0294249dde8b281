package manifest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Avoid keeps the machine from a node.
func (vm *VM) Avoid(node string) {
	vm.Affinity = limit(vm.Affinity, []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node}},
	}}})
}

// RunsOn makes the machine run only on nodes that can run its image, besides what is required of its node already:
// those with Linux, and of one of these architectures, where they are known.
func (vm *VM) RunsOn(architectures ...string) {
	wanted := []corev1.NodeSelectorRequirement{among(corev1.LabelOSStable, "linux")}
	if len(architectures) > 0 {
		wanted = append(wanted, among(corev1.LabelArchStable, architectures...))
	}
	vm.Affinity = limit(vm.Affinity, []corev1.NodeSelectorTerm{{MatchExpressions: wanted}})
}

func among(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// alike asks the scheduler for a node that can run the machine's image, as RunsOn has asked for the machine's. Each of
// the machine's terms says it; a machine that was made before has none.
func alike(machine *corev1.Pod) *corev1.Affinity {
	affinity := machine.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	platform := slices.DeleteFunc(slices.Clone(terms[0].MatchExpressions), func(required corev1.NodeSelectorRequirement) bool {
		return required.Key != corev1.LabelOSStable && required.Key != corev1.LabelArchStable
	})
	if len(platform) == 0 {
		return nil
	}
	return limit(nil, []corev1.NodeSelectorTerm{{MatchExpressions: platform}})
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
