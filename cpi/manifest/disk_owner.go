package manifest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DiskOwner is the owner record of a disk: a label and an annotation of its PVC. They name the VM that has the disk, and the Pod that may
// open its volume. It is the only such record. An attachment Pod starts once the record contains the Pod (see OwnerGate). A VM has the
// disk until the record is removed, even if the attachment Pod is deleted.
type DiskOwner struct {
	// VM is the VM that has the disk (LabelVM).
	VM string
	// Pod is the UID of the attachment Pod (AnnotationOwner).
	Pod types.UID
}

// Owner returns the owner record of the disk; the zero value means that the disk is free. ok is false for an invalid record: a VM
// without a Pod, or a Pod without a VM.
func (d DiskPVC) Owner() (owner DiskOwner, ok bool) {
	owner = DiskOwner{VM: d.Labels[LabelVM], Pod: types.UID(d.Annotations[AnnotationOwner])}
	return owner, (owner.VM == "") == (owner.Pod == "")
}

// AssignDiskPatch returns the strategic merge patch that records the owner, if the PVC is unchanged since it was read.
func AssignDiskPatch(pvc DiskPVC, owner DiskOwner) []byte {
	return metadataPatch(map[string]any{
		"uid": pvc.UID, "resourceVersion": pvc.ResourceVersion,
		"labels":      map[string]*string{LabelVM: &owner.VM},
		"annotations": map[string]string{AnnotationOwner: string(owner.Pod)},
	})
}

// ReleaseDiskPatch returns the JSON patch that removes this owner record, which may be invalid, if the PVC still has it.
func ReleaseDiskPatch(owner DiskOwner) []byte {
	var patch jsonPatch
	patch.remove("/metadata/labels/"+LabelVM, owner.VM)
	patch.remove("/metadata/annotations/"+AnnotationOwner, string(owner.Pod))
	return encode(patch)
}

// MarkFormattedPatch returns the JSON patch that records how the VM has the disk (see AnnotationFormatted), if the attachment Pod still
// owns the disk.
func MarkFormattedPatch(attachment AttachmentPod) []byte {
	var patch jsonPatch
	patch.test("/metadata/annotations/"+AnnotationOwner, string(attachment.UID))
	patch.add("/metadata/annotations/"+AnnotationFormatted, attachment.formatted())
	return encode(patch)
}

// LacksFormattedRecord reports whether the Pod has a record of AnnotationFormatted without a value.
func (a AttachmentPod) LacksFormattedRecord() bool {
	isRecord := func(volume corev1.Volume) bool { return volume.Name == recordVolume }
	return slices.ContainsFunc(a.Spec.Volumes, isRecord) && a.Annotations[AnnotationFormatted] == ""
}

// RecordFormattedPatch returns the strategic merge patch that sets AnnotationFormatted of exactly this attachment Pod, by UID.
func RecordFormattedPatch(attachment AttachmentPod) []byte {
	return metadataPatch(map[string]any{
		"uid": attachment.UID, "annotations": map[string]string{AnnotationFormatted: attachment.formatted()},
	})
}

// formatted returns the value of AnnotationFormatted for the disk.
func (a AttachmentPod) formatted() string {
	if a.IsDirectory() {
		return FormattedDirectory
	}
	return FormattedDevice
}

// OwnerGate is the scheduling gate of a Pod that opens the volume of a disk: an attachment Pod, or a VM Pod with disk_strategy:
// recreate. It is removed when the disk's PVC records the Pod as the owner, or when the VM's PodTemplate has the same disks. Therefore a
// delayed request to create such a Pod starts nothing if the disk has another owner.
const OwnerGate = Prefix + "disk-owner"

// UngatePatch returns the strategic merge patch that removes OwnerGate from exactly this Pod, by UID.
func UngatePatch(pod types.UID) []byte {
	return encode(map[string]any{
		"metadata": map[string]any{"uid": pod},
		"spec":     map[string]any{"schedulingGates": []any{map[string]string{"$patch": "delete", "name": OwnerGate}}},
	})
}

// addOwnerGate adds OwnerGate to the Pod.
func addOwnerGate(pod *corev1.Pod) {
	pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: OwnerGate})
}
