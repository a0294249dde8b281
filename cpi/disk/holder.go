package disk

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Who uses a disk is told by its attachment, a Pod that is named after the disk, so that there is one at the
// most; by the Pod that copies the disk, which has the same name; and, for a machine that is made again for
// each disk, by the disk's claim.

// unattached refuses a disk that is attached to a VM, or that a copy reads.
func (s *Session) unattached(disk *corev1.PersistentVolumeClaim) error {
	attachment, err := s.Pods.Get(s.Ctx, manifest.AttachmentName(disk.Name))
	switch {
	case errors.Is(err, kube.ErrNotFound):
		return s.FreeFor(disk, "")
	case err != nil:
		return err
	case attachment.DeletionTimestamp != nil:
		return nil
	case IsCopy(attachment) && !copyRuns(attachment):
		return nil
	case IsCopy(attachment):
		return CopyingError(attachment)
	}
	return AttachedError(attachment)
}

// AttachedError refuses a disk that this attachment holds.
func AttachedError(attachment *corev1.Pod) error {
	return attachedToError(attachment.Labels[manifest.LabelDisk], attachment.Labels[manifest.LabelVM])
}

func attachedToError(disk, vm string) error {
	return call.CloudError.Errorf("disk %s is attached to VM %s: detach it first", disk, vm)
}

// IsCopy tells the Pod that copies a disk from its attachment, which has the same name.
func IsCopy(pod *corev1.Pod) bool { return pod.Labels[manifest.LabelRole] == manifest.RoleCopy }

// copyRuns reports that the copy reads the disk; one that has not started can be ended at any time.
func copyRuns(pod *corev1.Pod) bool {
	over, _ := manifest.Outcome(pod)
	return kube.HasRun(manifest.OwnStatus(pod)) && !over
}

// CopyingError refuses a disk that is being copied.
func CopyingError(pod *corev1.Pod) error {
	return call.CloudError.Errorf("disk %s is being copied to disk %s by update_disk: repeat that call, or wait until Pod %s has ended",
		pod.Labels[manifest.LabelDisk], pod.Annotations[manifest.AnnotationCopiedTo], pod.Name)
}

// HolderOf returns the machine among whose own volumes the disk is, whatever has become of its attachment;
// "" when there is none.
func (s *Session) HolderOf(claim *corev1.PersistentVolumeClaim) (string, error) {
	vm := claim.Annotations[manifest.AnnotationVM]
	if vm == "" {
		return "", nil
	}
	template, err := s.Template(vm)
	if err == nil && slices.Contains(manifest.Disks(template.Template.Spec), claim.Name) {
		return vm, nil
	}
	if err != nil && !call.VMNotFound.In(err) {
		return "", err
	}
	pod, err := s.Pods.Get(s.Ctx, vm)
	if err == nil && slices.Contains(manifest.Disks(pod.Spec), claim.Name) {
		return vm, nil
	}
	if errors.Is(err, kube.ErrNotFound) {
		return "", nil
	}
	return "", err
}

// FreeFor refuses a disk that is among the own volumes of another machine than this one.
func (s *Session) FreeFor(claim *corev1.PersistentVolumeClaim, vm string) error {
	holder, err := s.HolderOf(claim)
	if err != nil || holder == "" || holder == vm {
		return err
	}
	return attachedToError(claim.Name, holder)
}
