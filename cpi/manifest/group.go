package manifest

import (
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// GroupLabel returns the value of LabelGroup: the group's name, or a hash if the name is not a valid label value.
func GroupLabel(group string) string {
	if label, ok := LabelValue(group); ok {
		return label
	}
	return groupHash(group)
}

// groupHash returns a hash of the group's name that is a valid label value and object name.
func groupHash(group string) string {
	sum := sha256.Sum256([]byte(group))
	return "group-" + hex.EncodeToString(sum[:16])
}

// PDBName returns the name of the group's PodDisruptionBudget: the group's name, or a hash if that is not a valid object name.
func PDBName(group string) string {
	if len(group) <= validation.DNS1123LabelMaxLength && len(validation.IsDNS1123Subdomain(group)) == 0 {
		return group
	}
	return groupHash(group)
}

// annotateGroup adds the annotations of the group and its disruption budget.
func (vm VM) annotateGroup(annotations map[string]string) {
	if vm.Group != "" {
		annotations[LabelGroup] = vm.Group
	}
	if vm.Budget != nil {
		annotations[AnnotationDisruptionBudget] = vm.Budget.String()
	}
}

// topologySpreadConstraints returns the requested constraints. By default, the VMs of a group are spread over nodes and zones as
// far as the cluster allows.
func (vm VM) topologySpreadConstraints() []corev1.TopologySpreadConstraint {
	if vm.TopologySpreadConstraints != nil || vm.Group == "" {
		return vm.TopologySpreadConstraints
	}
	var constraints []corev1.TopologySpreadConstraint
	for _, key := range []string{corev1.LabelHostname, corev1.LabelTopologyZone} {
		constraints = append(constraints, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: groupSelector(GroupLabel(vm.Group), vm.Director, RoleVM),
		})
	}
	return constraints
}

// groupSelector selects the VM Pods or the attachment Pods of a group.
func groupSelector(label, director, role string) *metav1.LabelSelector {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{LabelGroup: label, LabelRole: role}}
	if director != "" {
		selector.MatchLabels[LabelDirector] = director
	}
	return selector
}

// VMGroupSelector returns the label selector of the VM Pods with this value of LabelGroup.
func VMGroupSelector(label, director string) string {
	return metav1.FormatLabelSelector(groupSelector(label, director, RoleVM))
}
