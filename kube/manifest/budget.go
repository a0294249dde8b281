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

// Budget says how many machines of a group a drain must leave, or may take. One of the two is set.
type Budget struct {
	MinAvailable   *int32
	MaxUnavailable *int32
}

const (
	minAvailable   = "min-available="
	maxUnavailable = "max-unavailable="
)

// String is what AnnotationBudget holds.
func (b Budget) String() string {
	if b.MaxUnavailable != nil {
		return fmt.Sprint(maxUnavailable, *b.MaxUnavailable)
	}
	return fmt.Sprint(minAvailable, *b.MinAvailable)
}

// BudgetOf reads AnnotationBudget; nil when the object has none.
func BudgetOf(object metav1.Object) *Budget {
	text := object.GetAnnotations()[AnnotationBudget]
	_, number, _ := strings.Cut(text, "=")
	parsed, err := strconv.ParseInt(number, 10, 32)
	switch {
	case err != nil:
		return nil
	case strings.HasPrefix(text, maxUnavailable):
		return &Budget{MaxUnavailable: new(int32(parsed))}
	case strings.HasPrefix(text, minAvailable):
		return &Budget{MinAvailable: new(int32(parsed))}
	}
	return nil
}

// Counts reports that the budget depends on the number of machines.
func (b Budget) Counts() bool { return b.MaxUnavailable != nil }

// Of is the least number of machines that must stay, of so many. For Pods without a controller
// Kubernetes supports neither maxUnavailable nor percentages.
func (b Budget) Of(machines int) int32 {
	if b.MaxUnavailable != nil {
		return max(0, int32(machines)-*b.MaxUnavailable)
	}
	return *b.MinAvailable
}

// Object is the budget of the machine's group, with this many machines in it. It belongs to all of
// them and goes with the last.
func (b Budget) Object(vm VM, pod *corev1.Pod, machines int) *policyv1.PodDisruptionBudget {
	budget := budgetFor(vm, pod, BudgetName(vm.Group), RoleVM, b.Of(machines))
	budget.Annotations[AnnotationBudget] = b.String()
	// A machine that is broken already keeps no node from being drained.
	budget.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	return budget
}

// DiskBudget keeps the attachments of the group's machines from being evicted: each leaves with its
// machine, when that is evicted, and not before. One that was evicted while its machine waits for its
// turn could not be had back when the drain is given up.
func DiskBudget(vm VM, pod *corev1.Pod) *policyv1.PodDisruptionBudget {
	return budgetFor(vm, pod, DiskBudgetName(vm.Group), RoleAttachment, math.MaxInt32)
}

// DiskBudgetName is the name of the budget of the group's attachments.
func DiskBudgetName(group string) string { return BudgetName(group) + "-disks" }

func budgetFor(vm VM, pod *corev1.Pod, name, role string, least int32) *policyv1.PodDisruptionBudget {
	meta := owned(name, pod.Namespace, vm.Director, RoleBudget)
	meta.Labels[LabelGroup] = GroupLabel(vm.Group)
	meta.Annotations = map[string]string{LabelGroup: vm.Group}
	meta.OwnerReferences = []metav1.OwnerReference{Owner(pod)}
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: meta,
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(least)),
			Selector:     groupSelector(GroupLabel(vm.Group), vm.Director, role),
		},
	}
}

// JoinBudget is the strategic merge patch by which another machine joins a budget that is there. It
// holds only for the version that was read: a patch in between saw other machines.
func JoinBudget(left, wanted *policyv1.PodDisruptionBudget) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid": left.UID, "resourceVersion": left.ResourceVersion,
			"annotations": wanted.Annotations, "ownerReferences": wanted.OwnerReferences,
		},
		"spec": map[string]any{"minAvailable": wanted.Spec.MinAvailable},
	})
}

// Recount is the patch that makes a budget that is there right for this many machines, under the same
// condition; nil when it is right already, or is not of a kind that depends on their number.
func Recount(left *policyv1.PodDisruptionBudget, machines int) ([]byte, error) {
	budget := BudgetOf(left)
	if budget == nil || !budget.Counts() {
		return nil, nil
	}
	least := budget.Of(machines)
	if left.Spec.MinAvailable != nil && left.Spec.MinAvailable.IntVal == least {
		return nil, nil
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": left.UID, "resourceVersion": left.ResourceVersion},
		"spec":     map[string]any{"minAvailable": least},
	})
}
