package manifest

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DisruptionBudget is how many VMs of an instance group must stay available, or may be unavailable, during a drain. Exactly one of the
// fields is set. It is the cloud property `disruption_budget`.
type DisruptionBudget struct {
	MinAvailable   *int32 `json:"min_available"`
	MaxUnavailable *int32 `json:"max_unavailable"`
}

const (
	minAvailablePrefix   = "min-available="
	maxUnavailablePrefix = "max-unavailable="
)

// String returns the value of AnnotationDisruptionBudget.
func (b DisruptionBudget) String() string {
	if b.MaxUnavailable != nil {
		return fmt.Sprint(maxUnavailablePrefix, *b.MaxUnavailable)
	}
	return fmt.Sprint(minAvailablePrefix, *b.MinAvailable)
}

// DisruptionBudgetOf parses the object's AnnotationDisruptionBudget. It returns nil if the annotation is absent or not valid.
func DisruptionBudgetOf(object metav1.Object) *DisruptionBudget {
	value := object.GetAnnotations()[AnnotationDisruptionBudget]
	_, number, _ := strings.Cut(value, "=")
	parsed, err := strconv.ParseInt(number, 10, 32)
	switch {
	case err != nil:
		return nil
	case strings.HasPrefix(value, maxUnavailablePrefix):
		return &DisruptionBudget{MaxUnavailable: new(int32(parsed))}
	case strings.HasPrefix(value, minAvailablePrefix):
		return &DisruptionBudget{MinAvailable: new(int32(parsed))}
	}
	return nil
}

// DependsOnGroupSize reports whether MinAvailableFor depends on the number of VMs.
func (b DisruptionBudget) DependsOnGroupSize() bool { return b.MaxUnavailable != nil }

// MinAvailableFor returns how many of this number of VMs must be available. For Pods without a controller, Kubernetes supports neither
// maxUnavailable nor percentages:
// https://kubernetes.io/docs/tasks/run-application/configure-pdb/#arbitrary-controllers-and-selectors.
func (b DisruptionBudget) MinAvailableFor(vms int) int32 {
	if b.MaxUnavailable != nil {
		return max(0, int32(vms)-*b.MaxUnavailable)
	}
	return *b.MinAvailable
}

// Object returns the PodDisruptionBudget of the VM's group, which has this number of VMs. All of them own it, and it is deleted
// with the last one.
func (b DisruptionBudget) Object(vm VM, pod VMPod, vms int) *policyv1.PodDisruptionBudget {
	pdb := newPDB(vm, pod, PDBName(vm.Group), RoleVM, b.MinAvailableFor(vms))
	pdb.Annotations[AnnotationDisruptionBudget] = b.String()
	// Unhealthy VMs do not block a drain.
	pdb.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	return pdb
}

// AttachmentPDB returns the PodDisruptionBudget that protects the attachment Pods of the group from eviction. An attachment Pod
// must be deleted only after its VM Pod. If it were evicted while the VM Pod waits for its eviction, and the drain were then
// canceled, the attachment would be lost.
func AttachmentPDB(vm VM, pod VMPod) *policyv1.PodDisruptionBudget {
	return newPDB(vm, pod, AttachmentPDBName(vm.Group), RoleAttachment, math.MaxInt32)
}

// AttachmentPDBName returns the name of the PodDisruptionBudget of the group's attachment Pods. With its dot, it differs from the names of
// groups, such as "db-disks".
func AttachmentPDBName(group string) string { return PDBName(group) + ".disks" }

// newPDB returns a PodDisruptionBudget for the Pods of the VM's group with this role.
func newPDB(vm VM, pod VMPod, name, role string, minAvailable int32) *policyv1.PodDisruptionBudget {
	meta := newObjectMeta(name, pod.Namespace, vm.Director, RolePDB)
	meta.Labels[LabelGroup] = GroupLabel(vm.Group)
	meta.Annotations = map[string]string{LabelGroup: vm.Group}
	meta.OwnerReferences = []metav1.OwnerReference{pod.OwnerReference()}
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: meta,
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(minAvailable)),
			Selector:     groupSelector(GroupLabel(vm.Group), vm.Director, role),
		},
	}
}

// JoinPDBPatch returns the strategic merge patch that adds another VM to an existing PodDisruptionBudget, if it is unchanged since it
// was read: a concurrent change was made for another number of VMs.
func JoinPDBPatch(existing, desired *policyv1.PodDisruptionBudget) []byte {
	return encode(map[string]any{
		"metadata": map[string]any{
			"uid": existing.UID, "resourceVersion": existing.ResourceVersion,
			"annotations": desired.Annotations, "ownerReferences": desired.OwnerReferences,
		},
		"spec": map[string]any{"minAvailable": desired.Spec.MinAvailable},
	})
}

// ResizePDBPatch returns the strategic merge patch that adapts an existing PodDisruptionBudget to this number of VMs, if it is unchanged
// since it was read. The patch is nil if the PodDisruptionBudget is already correct, or does not depend on the number.
func ResizePDBPatch(existing *policyv1.PodDisruptionBudget, vms int) []byte {
	budget := DisruptionBudgetOf(existing)
	if budget == nil || !budget.DependsOnGroupSize() {
		return nil
	}
	minAvailable := budget.MinAvailableFor(vms)
	if existing.Spec.MinAvailable != nil && existing.Spec.MinAvailable.IntVal == minAvailable {
		return nil
	}
	return encode(map[string]any{
		"metadata": map[string]any{"uid": existing.UID, "resourceVersion": existing.ResourceVersion},
		"spec":     map[string]any{"minAvailable": minAvailable},
	})
}
