package disk

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Who uses a disk is told by its claim's label, from the moment that its attachment is made until it is proven free,
// or until the machine is gone. Beside that its attachment, a Pod that is named after the disk, so that there is one
// at the most, keeps others from it; and so does the Pod that copies the disk, which has the same name. That there
// is no such Pod says nothing: a cluster may take it away.

// unattached refuses a disk that is attached to a VM, or that a copy reads.
func (s *Session) unattached(disk *corev1.PersistentVolumeClaim) error {
	attachment, err := s.Pods.Get(s.Ctx, manifest.AttachmentName(disk.Name))
	switch {
	case errors.Is(err, kube.ErrNotFound):
		return s.FreeFor(disk, "")
	case err != nil:
		return err
	case attachment.DeletionTimestamp != nil:
		return s.FreeFor(disk, "")
	case IsCopy(attachment) && !copyRuns(attachment):
		return nil
	case IsCopy(attachment):
		return CopyingError(attachment)
	}
	return AttachedError(attachment)
}

// Unheld tells what others have done to the attachment of a disk that this machine uses: it is lost, or it is leaving,
// which it does once the disk is free. nil stands for a Pod that is not there.
func Unheld(vm, attachment *corev1.Pod) (lost, leaving bool) {
	if vm == nil || !kube.Runs(vm) || manifest.Recreated(vm) {
		return false, false
	}
	return attachment == nil, attachment != nil && attachment.DeletionTimestamp != nil
}

// AttachedError refuses a disk that this attachment holds.
func AttachedError(attachment *corev1.Pod) error {
	return attachedToError(attachment.Labels[manifest.LabelDisk], attachment.Labels[manifest.LabelVM])
}

func attachedToError(disk, vm string) error {
	return call.InUse(call.CloudError.Errorf("disk %s is attached to VM %s: detach it first", disk, vm))
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
	return call.InUse(call.CloudError.Errorf(
		"disk %s is being copied to disk %s by update_disk: repeat that call, or wait until Pod %s has ended",
		pod.Labels[manifest.LabelDisk], pod.Annotations[manifest.AnnotationCopiedTo], pod.Name))
}

// HolderOf returns the machine that uses the disk, whatever has become of its attachment; "" when there is none. One
// that has ended uses nothing, and one that is made again for each disk has it among its own volumes.
func (s *Session) HolderOf(claim *corev1.PersistentVolumeClaim) (string, error) {
	vm := claim.Labels[manifest.LabelVM]
	if vm == "" {
		return "", nil
	}
	pod, err := s.Pods.Get(s.Ctx, vm)
	switch {
	case err == nil && !manifest.Recreated(pod) && kube.Finished(pod):
		return "", nil
	case err == nil && (!manifest.Recreated(pod) || slices.Contains(manifest.Disks(pod.Spec), claim.Name)):
		return vm, nil
	case err != nil && !errors.Is(err, kube.ErrNotFound):
		return "", err
	}
	template, err := s.Template(vm)
	if err == nil && slices.Contains(manifest.Disks(template.Template.Spec), claim.Name) {
		return vm, nil
	}
	if call.VMNotFound.In(err) {
		return "", nil
	}
	return "", err
}

// FreeFor refuses a disk that another machine than this one uses.
func (s *Session) FreeFor(claim *corev1.PersistentVolumeClaim, vm string) error {
	if claim.Labels[manifest.LabelVM] == vm {
		return nil
	}
	holder, err := s.HolderOf(claim)
	if err != nil || holder == "" {
		return err
	}
	return attachedToError(claim.Name, holder)
}

// Assign notes whose the disk is going to be, and returns its claim as it is then. It is done before anything is waited for, so
// that a delete_disk that has looked already finds the claim changed. One that came first is told by the claim's end.
func (s *Session) Assign(claim *corev1.PersistentVolumeClaim, vm string) (*corev1.PersistentVolumeClaim, error) {
	if claim.Labels[manifest.LabelVM] == vm {
		return claim, nil
	}
	patch, err := manifest.SetLabel(manifest.LabelVM, &vm)
	if err != nil {
		return nil, err
	}
	return s.note(claim, vm, patch)
}

// Use notes that the machine uses the disk, which is attached to it.
func (s *Session) Use(claim *corev1.PersistentVolumeClaim, vm string) error {
	patch, err := manifest.Use(claim, vm)
	if err != nil || patch == nil {
		return err
	}
	_, err = s.note(claim, vm, patch)
	return err
}

// note changes the claim, unless it was deleted while the disk was being attached to the machine.
func (s *Session) note(claim *corev1.PersistentVolumeClaim, vm string, patch []byte) (*corev1.PersistentVolumeClaim, error) {
	noted, err := s.Claims.Patch(s.Ctx, claim.Name, patch)
	if errors.Is(err, kube.ErrNotFound) || err == nil && noted.DeletionTimestamp != nil {
		return nil, call.DiskNotFound.Errorf("disk %s was deleted while it was being attached to VM %s", claim.Name, vm)
	}
	return noted, err
}

// Free notes that no machine uses the disk any more. It may be gone since.
func (s *Session) Free(cid string) error {
	err := s.label(cid, manifest.LabelVM, nil)
	if errors.Is(err, kube.ErrNotFound) {
		return nil
	}
	return err
}

// UsedBy returns the disks whose claims say that the machine uses them.
func (s *Session) UsedBy(vm string) ([]*corev1.PersistentVolumeClaim, error) {
	found, err := s.Claims.List(s.Ctx, kube.Selection{
		Labels: manifest.LabelVM + "=" + vm + "," + manifest.LabelRole + "=" + manifest.RoleDisk,
	})
	return found.Items, err
}
