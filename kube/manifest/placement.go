package manifest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddVolumeAffinity makes the machine run only where these volumes can be used, besides what is required of its
// node already: a zonal or node-local volume says in its node affinity from where it can be reached.
func (vm *VM) AddVolumeAffinity(volumes ...*corev1.PersistentVolume) {
	for _, volume := range volumes {
		if volume.Spec.NodeAffinity != nil && volume.Spec.NodeAffinity.Required != nil {
			vm.Affinity = addRequiredTerms(vm.Affinity, volume.Spec.NodeAffinity.Required.NodeSelectorTerms)
		}
	}
}

// AvoidNode keeps the machine from a node.
func (vm *VM) AvoidNode(node string) {
	vm.Affinity = addRequiredTerms(vm.Affinity, []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node}},
	}}})
}

// AddPlatformAffinity makes the machine run only on nodes that can run its image, besides what is required of its node already:
// those with Linux, and of one of these architectures, where they are known.
func (vm *VM) AddPlatformAffinity(architectures ...string) {
	requirements := []corev1.NodeSelectorRequirement{requirementIn(corev1.LabelOSStable, "linux")}
	if len(architectures) > 0 {
		requirements = append(requirements, requirementIn(corev1.LabelArchStable, architectures...))
	}
	vm.Affinity = addRequiredTerms(vm.Affinity, []corev1.NodeSelectorTerm{{MatchExpressions: requirements}})
}

func requirementIn(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// platformAffinity asks the scheduler for a node that can run the machine's image, as RunsOn has asked for the machine's. Each of
// the machine's terms says it; a machine that was made before has none.
func platformAffinity(pod *corev1.Pod) *corev1.Affinity {
	affinity := pod.Spec.Affinity
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
	return addRequiredTerms(nil, []corev1.NodeSelectorTerm{{MatchExpressions: platform}})
}

// addRequiredTerms returns the affinity with these terms required of the node, besides what it requires already.
func addRequiredTerms(affinity *corev1.Affinity, terms []corev1.NodeSelectorTerm) *corev1.Affinity {
	result := affinity.DeepCopy()
	if result == nil {
		result = &corev1.Affinity{}
	}
	if result.NodeAffinity == nil {
		result.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := &result.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required != nil {
		terms = combineTerms((*required).NodeSelectorTerms, terms)
	}
	*required = &corev1.NodeSelector{NodeSelectorTerms: terms}
	return result
}

// combineTerms returns the terms that hold when one of each list holds: a list is an or, a term an and. No
// term stands for any node.
func combineTerms(some, others []corev1.NodeSelectorTerm) []corev1.NodeSelectorTerm {
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
