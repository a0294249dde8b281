package manifest

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DisruptionBudget says how many machines of a group a drain must leave, or may take. One of the two is set.
type DisruptionBudget struct {
	MinAvailable   *int32
	MaxUnavailable *int32
}

const (
	minAvailablePrefix   = "min-available="
	maxUnavailablePrefix = "max-unavailable="
)

// String is what AnnotationBudget holds.
func (b DisruptionBudget) String() string {
	if b.MaxUnavailable != nil {
		return fmt.Sprint(maxUnavailablePrefix, *b.MaxUnavailable)
	}
	return fmt.Sprint(minAvailablePrefix, *b.MinAvailable)
}

// DisruptionBudgetOf reads AnnotationBudget; nil when the object has none.
func DisruptionBudgetOf(object metav1.Object) *DisruptionBudget {
	text := object.GetAnnotations()[AnnotationDisruptionBudget]
	_, number, _ := strings.Cut(text, "=")
	parsed, err := strconv.ParseInt(number, 10, 32)
	switch {
	case err != nil:
		return nil
	case strings.HasPrefix(text, maxUnavailablePrefix):
		return &DisruptionBudget{MaxUnavailable: new(int32(parsed))}
	case strings.HasPrefix(text, minAvailablePrefix):
		return &DisruptionBudget{MinAvailable: new(int32(parsed))}
	}
	return nil
}

// DependsOnGroupSize reports that the budget depends on the number of machines.
func (b DisruptionBudget) DependsOnGroupSize() bool { return b.MaxUnavailable != nil }

// MinAvailableFor is the least number of machines that must stay, of so many. For Pods without a controller
// Kubernetes supports neither maxUnavailable nor percentages.
func (b DisruptionBudget) MinAvailableFor(vms int) int32 {
	if b.MaxUnavailable != nil {
		return max(0, int32(vms)-*b.MaxUnavailable)
	}
	return *b.MinAvailable
}

// Object is the budget of the machine's group, with this many machines in it. It belongs to all of
// them and goes with the last.
func (b DisruptionBudget) Object(vm VM, pod *corev1.Pod, vms int) *policyv1.PodDisruptionBudget {
	budget := newPDB(vm, pod, PDBName(vm.Group), RoleVM, b.MinAvailableFor(vms))
	budget.Annotations[AnnotationDisruptionBudget] = b.String()
	// A machine that is broken already keeps no node from being drained.
	budget.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	return budget
}

// AttachmentPDB keeps the attachments of the group's machines from being evicted: each leaves with its
// machine, when that is evicted, and not before. One that was evicted while its machine waits for its
// turn could not be had back when the drain is given up.
func AttachmentPDB(vm VM, pod *corev1.Pod) *policyv1.PodDisruptionBudget {
	return newPDB(vm, pod, AttachmentPDBName(vm.Group), RoleAttachment, math.MaxInt32)
}

// AttachmentPDBName is the name of the budget of the group's attachments.
func AttachmentPDBName(group string) string { return PDBName(group) + "-disks" }

func newPDB(vm VM, pod *corev1.Pod, name, role string, least int32) *policyv1.PodDisruptionBudget {
	meta := newObjectMeta(name, pod.Namespace, vm.Director, RolePDB)
	meta.Labels[LabelGroup] = GroupLabel(vm.Group)
	meta.Annotations = map[string]string{LabelGroup: vm.Group}
	meta.OwnerReferences = []metav1.OwnerReference{OwnerReference(pod)}
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: meta,
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(least)),
			Selector:     groupSelector(GroupLabel(vm.Group), vm.Director, role),
		},
	}
}

// JoinPDB is the strategic merge patch by which another machine joins a budget that is there. It
// holds only for the version that was read: a patch in between saw other machines.
func JoinPDB(existing, desired *policyv1.PodDisruptionBudget) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid": existing.UID, "resourceVersion": existing.ResourceVersion,
			"annotations": desired.Annotations, "ownerReferences": desired.OwnerReferences,
		},
		"spec": map[string]any{"minAvailable": desired.Spec.MinAvailable},
	})
}

// ResizePDB is the patch that makes a budget that is there right for this many machines, under the same
// condition; nil when it is right already, or is not of a kind that depends on their number.
func ResizePDB(existing *policyv1.PodDisruptionBudget, vms int) ([]byte, error) {
	budget := DisruptionBudgetOf(existing)
	if budget == nil || !budget.DependsOnGroupSize() {
		return nil, nil
	}
	least := budget.MinAvailableFor(vms)
	if existing.Spec.MinAvailable != nil && existing.Spec.MinAvailable.IntVal == least {
		return nil, nil
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": existing.UID, "resourceVersion": existing.ResourceVersion},
		"spec":     map[string]any{"minAvailable": least},
	})
}
