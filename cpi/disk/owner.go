package disk

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// A disk has one owner at most: the VM that its PVC records, or the Pod that copies it. Every change of that record is a
// compare-and-swap: it carries the resourceVersion of the PVC on which it was decided, or tests the record that it
// replaces. After a conflict, which is also the answer to a request that was repeated because its first answer was lost,
// the PVC is read and the change is decided again. docs/development/architecture.md has the states and their changes.
//
// A Pod that opens the volume is created with a scheduling gate, becomes the owner, and then starts. So a request that
// was delayed, whatever has happened meanwhile, starts nothing that writes to the disk.

// Own makes the Pod, which attaches the disk to the VM, the owner of the disk, and lets it start. permit decides whether
// the disk, as it is now, can become the VM's. A Pod that already is the owner only starts.
func (s *Session) Own(pvc *corev1.PersistentVolumeClaim, vm string, pod *corev1.Pod,
	permit func(*corev1.PersistentVolumeClaim) error) (*corev1.PersistentVolumeClaim, *corev1.Pod, error) {

	owner := manifest.DiskOwner{VM: vm, Pod: pod.UID}
	name := pvc.Name
	pvc, err := s.assign(pvc, owner, permit, func(now *corev1.PersistentVolumeClaim) ([]byte, error) {
		return manifest.AssignDisk(now, owner)
	})
	if call.DiskNotFound.In(err) {
		err = deletedMeanwhile(name, vm)
	}
	if err != nil {
		return pvc, pod, err
	}
	pod, err = s.start(pod)
	return pvc, pod, err
}

func deletedMeanwhile(cid, vm string) error {
	return call.DiskNotFound.Errorf("disk %s was deleted while it was being attached to VM %s", cid, vm)
}

// assign records the owner with what patch returns, unless it is recorded, and decides again as long as others change the PVC.
func (s *Session) assign(pvc *corev1.PersistentVolumeClaim, owner manifest.DiskOwner, permit func(*corev1.PersistentVolumeClaim) error,
	patch func(*corev1.PersistentVolumeClaim) ([]byte, error)) (*corev1.PersistentVolumeClaim, error) {

	for {
		if now, ok := manifest.DiskOwnerOf(pvc); ok && now == owner {
			return pvc, nil
		}
		if err := permit(pvc); err != nil {
			return pvc, err
		}
		change, err := patch(pvc)
		if err != nil {
			return pvc, err
		}
		assigned, err := s.Claims.Patch(s.Ctx, pvc.Name, change)
		switch {
		case err == nil && assigned.DeletionTimestamp != nil:
			return assigned, call.NoDisk(pvc.Name)
		case err == nil:
			return assigned, nil
		case !errors.Is(err, kube.ErrConflict) && !errors.Is(err, kube.ErrNotFound):
			return pvc, err
		}
		if pvc, err = s.Claim(pvc.Name); err != nil {
			return pvc, err
		}
	}
}

// start removes the gate of a Pod that owns its disk.
func (s *Session) start(pod *corev1.Pod) (*corev1.Pod, error) {
	if !manifest.Gated(pod) || pod.DeletionTimestamp != nil {
		return pod, nil
	}
	patch, err := manifest.Ungate(pod)
	if err != nil {
		return pod, err
	}
	started, err := s.Pods.Patch(s.Ctx, pod.Name, patch)
	if errors.Is(err, kube.ErrNotFound) || errors.Is(err, kube.ErrConflict) {
		return pod, call.CloudError.Errorf("Pod %s was deleted before it started", pod.Name)
	}
	if err != nil {
		return pod, err
	}
	return started, nil
}

// MarkFormatted records that the disk has its filesystem, as it was attached. The attachment Pod has to own it still.
func (s *Session) MarkFormatted(pvc *corev1.PersistentVolumeClaim, vm string, pod types.UID) error {
	if manifest.IsDirectory(pvc) || manifest.Formatted(pvc) {
		return nil
	}
	patch, err := manifest.MarkFormatted(pod)
	if err != nil {
		return err
	}
	marked, err := s.Claims.PatchIf(s.Ctx, pvc.Name, patch)
	switch {
	case errors.Is(err, kube.ErrNotFound), err == nil && marked.DeletionTimestamp != nil:
		return deletedMeanwhile(pvc.Name, vm)
	case errors.Is(err, kube.ErrConflict):
		return call.CloudError.Errorf("disk %s was detached while it was being attached", pvc.Name)
	}
	return err
}

// Release makes the disk free if this is its owner still, and returns the owner that it has then: none, or the next one.
func (s *Session) Release(cid string, owner manifest.DiskOwner) (manifest.DiskOwner, error) {
	none := manifest.DiskOwner{}
	patch, err := manifest.ReleaseDisk(owner)
	if err != nil {
		return none, err
	}
	_, err = s.Claims.PatchIf(s.Ctx, cid, patch)
	if err == nil || errors.Is(err, kube.ErrNotFound) {
		return none, nil
	}
	if !errors.Is(err, kube.ErrConflict) {
		return none, err
	}
	pvc, err := s.Claims.Get(s.Ctx, cid)
	if errors.Is(err, kube.ErrNotFound) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	now, ok := manifest.DiskOwnerOf(pvc)
	if !ok {
		return now, s.damaged(pvc)
	}
	return now, nil
}

// ReleaseFrom makes all disks free that a VM has, once it is gone, and reports whether there were any.
func (s *Session) ReleaseFrom(vm string) (released bool, err error) {
	disks, err := s.OwnedBy(vm)
	if err != nil {
		return false, err
	}
	for _, pvc := range disks {
		owner, _ := manifest.DiskOwnerOf(pvc)
		if _, err := s.Release(pvc.Name, owner); err != nil {
			return true, err
		}
	}
	return len(disks) > 0, nil
}

// OwnedBy returns the disks that the VM has.
func (s *Session) OwnedBy(vm string) ([]*corev1.PersistentVolumeClaim, error) {
	found, err := s.Claims.List(s.Ctx, kube.Selection{
		Labels: manifest.LabelVM + "=" + vm + "," + manifest.LabelRole + "=" + manifest.RoleDisk,
	})
	if err != nil {
		return nil, err
	}
	return found.Items, nil
}

// OwnerOf returns the VM that has the disk, whatever has become of its attachment; "" if there is none. A VM whose Pod has
// ended has no disks, and one that is recreated for each disk has those among its own volumes. A record that is damaged, or
// names a VM that does not exist, is an error: nobody knows who writes to the disk.
func (s *Session) OwnerOf(pvc *corev1.PersistentVolumeClaim) (string, error) {
	owner, ok := manifest.DiskOwnerOf(pvc)
	switch {
	case !ok:
		return "", s.damaged(pvc)
	case owner.VM == "":
		return "", nil
	}
	vm := owner.VM
	pod, err := s.Pods.Get(s.Ctx, vm)
	switch {
	case err == nil && !manifest.Recreated(pod) && kube.Finished(pod):
		return "", nil
	case err == nil && (!manifest.Recreated(pod) || slices.Contains(manifest.Disks(pod.Spec), pvc.Name)):
		return vm, nil
	case err != nil && !errors.Is(err, kube.ErrNotFound):
		return "", err
	}
	template, err := s.Template(vm)
	switch {
	case call.VMNotFound.In(err):
		return "", call.CloudError.Errorf("disk %s is recorded as attached to VM %s, which does not exist: nothing was changed. "+
			"Delete the VM with `bosh delete-vm %s`, or release the disk with %s", pvc.Name, vm, vm, s.repair())
	case err != nil:
		return "", err
	case slices.Contains(manifest.Disks(template.Template.Spec), pvc.Name):
		return vm, nil
	}
	return "", nil
}

// damaged is the error about a record that nobody can act on.
func (s *Session) damaged(pvc *corev1.PersistentVolumeClaim) error {
	return call.CloudError.Errorf("the owner record of disk %s is damaged: label %s is %q, annotation %s is %q. "+
		"Nothing was changed. Repair it with %s", pvc.Name, manifest.LabelVM, pvc.Labels[manifest.LabelVM],
		manifest.AnnotationOwner, pvc.Annotations[manifest.AnnotationOwner], s.repair())
}

// repair is the command that repairs owner records.
func (s *Session) repair() string {
	return "`kubectl bosh collect --director " + s.Director + " --confirm`"
}

// FreeFor refuses a disk that another VM than this one has, or that has a damaged record. "" stands for no VM.
func (s *Session) FreeFor(pvc *corev1.PersistentVolumeClaim, vm string) error {
	owner, ok := manifest.DiskOwnerOf(pvc)
	if !ok {
		return s.damaged(pvc)
	}
	if owner.VM == vm {
		return nil
	}
	holder, err := s.OwnerOf(pvc)
	if err != nil || holder == "" {
		return err
	}
	return attachedToError(pvc.Name, holder)
}

// unattached refuses a disk that a VM has, or that a copy reads.
func (s *Session) unattached(pvc *corev1.PersistentVolumeClaim) error {
	pod, err := s.Pods.Get(s.Ctx, manifest.AttachmentName(pvc.Name))
	switch {
	case errors.Is(err, kube.ErrNotFound):
		return s.FreeFor(pvc, "")
	case err != nil:
		return err
	case pod.DeletionTimestamp != nil:
		return s.FreeFor(pvc, "")
	case IsCopy(pod) && !copyRuns(pod):
		return nil
	case IsCopy(pod):
		return CopyingError(pod)
	}
	if superseded, err := s.EndSuperseded(pod); superseded || err != nil {
		if err != nil {
			return err
		}
		return s.FreeFor(pvc, "")
	}
	return AttachedError(pod)
}

// EndSuperseded deletes a Pod that waits to become the owner of its disk, if it is not. The call that created it has ended,
// or will find the Pod gone. ended is false for any other Pod, which stays.
func (s *Session) EndSuperseded(pod *corev1.Pod) (ended bool, err error) {
	if !manifest.Gated(pod) || pod.DeletionTimestamp != nil {
		return false, nil
	}
	pvc, err := s.Claims.Get(s.Ctx, pod.Labels[manifest.LabelDisk])
	if err != nil && !errors.Is(err, kube.ErrNotFound) {
		return false, err
	}
	if err == nil && pvc.Annotations[manifest.AnnotationOwner] == string(pod.UID) {
		return false, nil
	}
	err = s.Pods.DeleteUnchanged(s.Ctx, pod)
	if errors.Is(err, kube.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// Unheld tells what others have done to the attachment of a disk that this VM has: it is lost, or it is leaving,
// which it does once the disk is free. nil stands for a Pod that is not there.
func Unheld(vm, attachment *corev1.Pod) (lost, leaving bool) {
	if vm == nil || !kube.Runs(vm) || manifest.Recreated(vm) {
		return false, false
	}
	return attachment == nil, attachment != nil && attachment.DeletionTimestamp != nil
}

// AttachedError refuses a disk that this attachment Pod attaches.
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
