package manifest

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DiskOwner is the record on a disk's PVC of who may open its volume. It is the only record of that: a Pod that
// attaches or copies the disk starts once the record names it (see GateOwner), and the VM has the disk until the
// record is released, whatever becomes of the Pod.
type DiskOwner struct {
	// VM is the VM that has the disk (LabelVM); empty when a copy has it.
	VM string
	// Pod is the UID of the attachment Pod, or of the Pod that copies the disk (AnnotationOwner).
	Pod types.UID
}

// DiskOwnerOf returns the record of a disk; the zero value means that the disk is free. ok is false for a damaged
// record: a VM without a Pod, or a Pod without a VM although no copy was begun.
func DiskOwnerOf(pvc *corev1.PersistentVolumeClaim) (owner DiskOwner, ok bool) {
	owner = DiskOwner{VM: pvc.Labels[LabelVM], Pod: types.UID(pvc.Annotations[AnnotationOwner])}
	switch {
	case owner == DiskOwner{}:
		return owner, true
	case owner.VM == "":
		return owner, pvc.Annotations[AnnotationCopiedTo] != ""
	}
	return owner, owner.Pod != ""
}

// AssignDisk is the strategic merge patch that records the owner, if the PVC is still as it was read.
func AssignDisk(pvc *corev1.PersistentVolumeClaim, owner DiskOwner) ([]byte, error) {
	return metadataPatch(map[string]any{
		"uid": pvc.UID, "resourceVersion": pvc.ResourceVersion,
		"labels":      map[string]*string{LabelVM: &owner.VM},
		"annotations": map[string]string{AnnotationOwner: string(owner.Pod)},
	})
}

// AssignCopy is the strategic merge patch that records the Pod as the one that copies the disk to its successor, under
// the same condition.
func AssignCopy(pvc *corev1.PersistentVolumeClaim, successor string, pod types.UID) ([]byte, error) {
	return metadataPatch(map[string]any{
		"uid": pvc.UID, "resourceVersion": pvc.ResourceVersion,
		"labels":      map[string]*string{LabelVM: nil},
		"annotations": map[string]string{AnnotationOwner: string(pod), AnnotationCopiedTo: successor},
	})
}

// ReleaseDisk is the JSON patch that makes the disk free, if the record is still this one. It also removes a damaged one.
func ReleaseDisk(owner DiskOwner) ([]byte, error) {
	var patch jsonPatch
	if owner.VM != "" {
		patch.remove("/metadata/labels/"+LabelVM, owner.VM)
	}
	if owner.Pod != "" {
		patch.remove("/metadata/annotations/"+AnnotationOwner, string(owner.Pod))
	}
	return json.Marshal(patch)
}

// MarkFormatted is the JSON patch that records that the disk has its filesystem, if the owner is still this Pod.
func MarkFormatted(pod types.UID) ([]byte, error) {
	var patch jsonPatch
	patch.test("/metadata/annotations/"+AnnotationOwner, string(pod))
	patch.add("/metadata/annotations/"+AnnotationFormatted, "true")
	return json.Marshal(patch)
}

// BeginCopy is the strategic merge patch that names the successor to which the disk is about to be copied, if the PVC is
// still as it was read. What an earlier copy recorded it replaces.
func BeginCopy(pvc *corev1.PersistentVolumeClaim, successor string) ([]byte, error) {
	return copyRecord(pvc, &successor)
}

// AbandonCopy is the patch that removes the name of the successor and the record of the Pod that copied the disk, under
// the same condition.
func AbandonCopy(pvc *corev1.PersistentVolumeClaim) ([]byte, error) { return copyRecord(pvc, nil) }

func copyRecord(pvc *corev1.PersistentVolumeClaim, successor *string) ([]byte, error) {
	return metadataPatch(map[string]any{
		"uid": pvc.UID, "resourceVersion": pvc.ResourceVersion,
		"annotations": map[string]*string{AnnotationCopiedTo: successor, AnnotationOwner: nil},
	})
}

// AdvanceCopy is the JSON patch that gives LabelCopy of exactly this successor another value, if it has the first one still.
func AdvanceCopy(successor *corev1.PersistentVolumeClaim, from, to string) ([]byte, error) {
	var patch jsonPatch
	patch.test("/metadata/uid", string(successor.UID))
	patch.test("/metadata/labels/"+LabelCopy, from)
	patch.add("/metadata/labels/"+LabelCopy, to)
	return json.Marshal(patch)
}

// FinishCopy is the JSON patch that makes an accepted copy a disk like any other.
func FinishCopy() ([]byte, error) {
	var patch jsonPatch
	patch.remove("/metadata/labels/"+LabelCopy, CopyAccepted)
	return json.Marshal(patch)
}

// OwnerGate is the scheduling gate of a Pod that attaches or copies a disk, until the disk's PVC names the Pod as its
// owner. A request that creates such a Pod late, when the disk has another owner, therefore starts nothing.
const OwnerGate = Prefix + "disk-owner"

// IsGated reports whether the Pod waits to become the owner of its disk.
func IsGated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool { return gate.Name == OwnerGate })
}

// Ungate is the strategic merge patch that lets exactly this Pod start.
func Ungate(pod *corev1.Pod) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"spec":     map[string]any{"schedulingGates": []any{map[string]string{"$patch": "delete", "name": OwnerGate}}},
	})
}

// addOwnerGate makes the Pod wait to become the owner of its disk.
func addOwnerGate(pod *corev1.Pod) {
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: OwnerGate}}
}

// jsonPatch is a JSON patch (RFC 6902) of string values. Keys in its paths are written as they are.
type jsonPatch []jsonOperation

type jsonOperation struct {
	Operation string `json:"op"`
	Path      string `json:"path"`
	Value     string `json:"value,omitempty"`
}

func (p *jsonPatch) test(path, value string) {
	*p = append(*p, jsonOperation{"test", pointer(path), value})
}

func (p *jsonPatch) add(path, value string) {
	*p = append(*p, jsonOperation{"add", pointer(path), value})
}

// remove removes what has this value.
func (p *jsonPatch) remove(path, value string) {
	p.test(path, value)
	*p = append(*p, jsonOperation{Operation: "remove", Path: pointer(path)})
}

// pointer is the path as a JSON pointer (RFC 6901): the first three slashes separate, the others are a key's own.
func pointer(path string) string {
	const separators = 3 // "", "metadata", "labels", KEY
	parts := strings.SplitN(path, "/", separators+1)
	for i, part := range parts {
		parts[i] = strings.NewReplacer("~", "~0", "/", "~1").Replace(part)
	}
	return strings.Join(parts, "/")
}
