package manifest

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddVolumeAffinity restricts the VM, in addition to its other requirements, to nodes that can use these volumes. A zonal or
// node-local volume has a node affinity.
func (vm *VM) AddVolumeAffinity(volumes ...*corev1.PersistentVolume) {
	for _, volume := range volumes {
		if volume.Spec.NodeAffinity != nil && volume.Spec.NodeAffinity.Required != nil {
			vm.Affinity = addRequiredTerms(vm.Affinity, volume.Spec.NodeAffinity.Required.NodeSelectorTerms)
		}
	}
}

// AvoidNode excludes a node for the VM.
func (vm *VM) AvoidNode(node string) {
	vm.Affinity = addRequiredTerms(vm.Affinity, nodeNameTerms(corev1.NodeSelectorOpNotIn, node))
}

// nodeNameTerms selects the node of this name, or with NodeSelectorOpNotIn all others.
func nodeNameTerms(operator corev1.NodeSelectorOperator, name string) []corev1.NodeSelectorTerm {
	return []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: operator, Values: []string{name}},
	}}}
}

// AddPlatformAffinity restricts the VM, in addition to its other requirements, to nodes that can run its image: Linux nodes of one
// of these architectures. Without architectures, any Linux node matches. If the VM's node selector has an architecture, it takes
// precedence, because nodes can emulate another one.
func (vm *VM) AddPlatformAffinity(architectures ...string) {
	requirements := []corev1.NodeSelectorRequirement{requirementIn(corev1.LabelOSStable, "linux")}
	if len(architectures) > 0 && vm.NodeSelector[corev1.LabelArchStable] == "" {
		requirements = append(requirements, requirementIn(corev1.LabelArchStable, architectures...))
	}
	vm.Affinity = addRequiredTerms(vm.Affinity, []corev1.NodeSelectorTerm{{MatchExpressions: requirements}})
}

func requirementIn(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// addRequiredTerms returns a copy of the affinity that also requires one of these terms.
func addRequiredTerms(affinity *corev1.Affinity, terms []corev1.NodeSelectorTerm) *corev1.Affinity {
	result := cmp.Or(affinity.DeepCopy(), &corev1.Affinity{})
	result.NodeAffinity = cmp.Or(result.NodeAffinity, &corev1.NodeAffinity{})
	required := &result.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required != nil {
		terms = combineTerms((*required).NodeSelectorTerms, terms)
	}
	*required = &corev1.NodeSelector{NodeSelectorTerms: terms}
	return result
}

// combineTerms returns terms for the nodes that match a term of each list. Kubernetes combines the terms of a list with OR, and the
// requirements of a term with AND, so the result has a term for each pair. An empty list matches any node.
func combineTerms(first, second []corev1.NodeSelectorTerm) []corev1.NodeSelectorTerm {
	if len(first) == 0 {
		return second
	}
	if len(second) == 0 {
		return first
	}
	var combined []corev1.NodeSelectorTerm
	for _, a := range first {
		for _, b := range second {
			combined = append(combined, corev1.NodeSelectorTerm{
				MatchExpressions: slices.Concat(a.MatchExpressions, b.MatchExpressions),
				MatchFields:      slices.Concat(a.MatchFields, b.MatchFields),
			})
		}
	}
	return combined
}
