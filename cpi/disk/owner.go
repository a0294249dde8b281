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

// AssignAndStart makes the Pod, which attaches the disk to the VM, the owner of the disk, and lets it start. permit decides whether
// the disk, as it is now, can become the VM's. A Pod that already is the owner only starts.
func (s *Session) AssignAndStart(pvc *corev1.PersistentVolumeClaim, vmCID string, pod *corev1.Pod,
	validate func(*corev1.PersistentVolumeClaim) error) (*corev1.PersistentVolumeClaim, *corev1.Pod, error) {

	owner := manifest.DiskOwner{VM: vmCID, Pod: pod.UID}
	name := pvc.Name
	pvc, err := s.assignOwner(pvc, owner, validate, func(current *corev1.PersistentVolumeClaim) ([]byte, error) {
		return manifest.AssignDisk(current, owner)
	})
	if call.DiskNotFound.Is(err) {
		err = deletedDuringAttachError(name, vmCID)
	}
	if err != nil {
		return pvc, pod, err
	}
	pod, err = s.startPod(pod)
	return pvc, pod, err
}

func deletedDuringAttachError(cid, vmCID string) error {
	return call.DiskNotFound.Errorf("disk %s was deleted while it was being attached to VM %s", cid, vmCID)
}

// assignOwner records the owner with what patch returns, unless it is recorded, and decides again as long as others change the PVC.
func (s *Session) assignOwner(
	pvc *corev1.PersistentVolumeClaim,
	owner manifest.DiskOwner,
	validate func(*corev1.PersistentVolumeClaim) error,
	patch func(*corev1.PersistentVolumeClaim) ([]byte, error),
) (*corev1.PersistentVolumeClaim, error) {

	for {
		if current, ok := manifest.DiskOwnerOf(pvc); ok && current == owner {
			return pvc, nil
		}
		if err := validate(pvc); err != nil {
			return pvc, err
		}
		change, err := patch(pvc)
		if err != nil {
			return pvc, err
		}
		assigned, err := s.PVCs.Patch(s.Ctx, pvc.Name, change)
		switch {
		case err == nil && assigned.DeletionTimestamp != nil:
			return assigned, call.NoDisk(pvc.Name)
		case err == nil:
			return assigned, nil
		case !errors.Is(err, kube.ErrConflict) && !errors.Is(err, kube.ErrNotFound):
			return pvc, err
		}
		if pvc, err = s.GetPVC(pvc.Name); err != nil {
			return pvc, err
		}
	}
}

// startPod removes the gate of a Pod that owns its disk.
func (s *Session) startPod(pod *corev1.Pod) (*corev1.Pod, error) {
	if !manifest.IsGated(pod) || pod.DeletionTimestamp != nil {
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
func (s *Session) MarkFormatted(pvc *corev1.PersistentVolumeClaim, vmCID string, pod types.UID) error {
	if manifest.IsDirectory(pvc) || manifest.IsFormatted(pvc) {
		return nil
	}
	patch, err := manifest.MarkFormatted(pod)
	if err != nil {
		return err
	}
	marked, err := s.PVCs.PatchJSON(s.Ctx, pvc.Name, patch)
	switch {
	case errors.Is(err, kube.ErrNotFound), err == nil && marked.DeletionTimestamp != nil:
		return deletedDuringAttachError(pvc.Name, vmCID)
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
	_, err = s.PVCs.PatchJSON(s.Ctx, cid, patch)
	if err == nil || errors.Is(err, kube.ErrNotFound) {
		return none, nil
	}
	if !errors.Is(err, kube.ErrConflict) {
		return none, err
	}
	pvc, err := s.PVCs.Get(s.Ctx, cid)
	if errors.Is(err, kube.ErrNotFound) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	current, ok := manifest.DiskOwnerOf(pvc)
	if !ok {
		return current, s.damagedRecordError(pvc)
	}
	return current, nil
}

// ReleaseAll makes all disks free that a VM has, once it is gone, and reports whether there were any.
func (s *Session) ReleaseAll(vmCID string) (released bool, err error) {
	disks, err := s.ListOwnedBy(vmCID)
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

// ListOwnedBy returns the disks that the VM has.
func (s *Session) ListOwnedBy(vmCID string) ([]*corev1.PersistentVolumeClaim, error) {
	found, err := s.PVCs.List(s.Ctx, kube.Selection{
		Labels: manifest.LabelVM + "=" + vmCID + "," + manifest.LabelRole + "=" + manifest.RoleDisk,
	})
	if err != nil {
		return nil, err
	}
	return found.Items, nil
}

// OwningVM returns the VM that has the disk, whatever has become of its attachment; "" if there is none. A VM whose Pod has
// ended has no disks, and one that is recreated for each disk has those among its own volumes. A record that is damaged, or
// names a VM that does not exist, is an error: nobody knows who writes to the disk.
func (s *Session) OwningVM(pvc *corev1.PersistentVolumeClaim) (string, error) {
	owner, ok := manifest.DiskOwnerOf(pvc)
	switch {
	case !ok:
		return "", s.damagedRecordError(pvc)
	case owner.VM == "":
		return "", nil
	}
	vmCID := owner.VM
	pod, err := s.Pods.Get(s.Ctx, vmCID)
	switch {
	case err == nil && !manifest.IsRecreated(pod) && kube.Finished(pod):
		return "", nil
	case err == nil && (!manifest.IsRecreated(pod) || slices.Contains(manifest.DiskCIDs(pod.Spec), pvc.Name)):
		return vmCID, nil
	case err != nil && !errors.Is(err, kube.ErrNotFound):
		return "", err
	}
	template, err := s.GetPodTemplate(vmCID)
	switch {
	case call.VMNotFound.Is(err):
		return "", call.CloudError.Errorf("disk %s is recorded as attached to VM %s, which does not exist: nothing was changed. "+
			"Delete the VM with `bosh delete-vm %s`, or release the disk with %s", pvc.Name, vmCID, vmCID, s.repairCommand())
	case err != nil:
		return "", err
	case slices.Contains(manifest.DiskCIDs(template.Template.Spec), pvc.Name):
		return vmCID, nil
	}
	return "", nil
}

// damagedRecordError is the error about a record that nobody can act on.
func (s *Session) damagedRecordError(pvc *corev1.PersistentVolumeClaim) error {
	return call.CloudError.Errorf("the owner record of disk %s is damaged: label %s is %q, annotation %s is %q. "+
		"Nothing was changed. Repair it with %s", pvc.Name, manifest.LabelVM, pvc.Labels[manifest.LabelVM],
		manifest.AnnotationOwner, pvc.Annotations[manifest.AnnotationOwner], s.repairCommand())
}

// repairCommand is the command that repairs owner records.
func (s *Session) repairCommand() string {
	return "`kubectl bosh collect --director " + s.Director + " --confirm`"
}

// CheckFreeFor refuses a disk that another VM than this one has, or that has a damaged record. "" stands for no VM.
func (s *Session) CheckFreeFor(pvc *corev1.PersistentVolumeClaim, vmCID string) error {
	owner, ok := manifest.DiskOwnerOf(pvc)
	if !ok {
		return s.damagedRecordError(pvc)
	}
	if owner.VM == vmCID {
		return nil
	}
	owningVM, err := s.OwningVM(pvc)
	if err != nil || owningVM == "" {
		return err
	}
	return attachedToError(pvc.Name, owningVM)
}

// checkUnattached refuses a disk that a VM has, or that a copy reads.
func (s *Session) checkUnattached(pvc *corev1.PersistentVolumeClaim) error {
	pod, err := s.Pods.Get(s.Ctx, manifest.AttachmentName(pvc.Name))
	switch {
	case errors.Is(err, kube.ErrNotFound):
		return s.CheckFreeFor(pvc, "")
	case err != nil:
		return err
	case pod.DeletionTimestamp != nil:
		return s.CheckFreeFor(pvc, "")
	case IsCopyPod(pod) && !copyRunning(pod):
		return nil
	case IsCopyPod(pod):
		return CopyingError(pod)
	}
	if superseded, err := s.DeleteSuperseded(pod); superseded || err != nil {
		if err != nil {
			return err
		}
		return s.CheckFreeFor(pvc, "")
	}
	return AttachedError(pod)
}

// DeleteSuperseded deletes a Pod that waits to become the owner of its disk, if it is not. The call that created it has ended,
// or will find the Pod gone. ended is false for any other Pod, which stays.
func (s *Session) DeleteSuperseded(pod *corev1.Pod) (deleted bool, err error) {
	if !manifest.IsGated(pod) || pod.DeletionTimestamp != nil {
		return false, nil
	}
	pvc, err := s.PVCs.Get(s.Ctx, pod.Labels[manifest.LabelDisk])
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

// InspectAttachment tells what others have done to the attachment of a disk that this VM has: it is lost, or it is leaving,
// which it does once the disk is free. nil stands for a Pod that is not there.
func InspectAttachment(vmPod, attachment *corev1.Pod) (lost, terminating bool) {
	if vmPod == nil || !kube.IsActive(vmPod) || manifest.IsRecreated(vmPod) {
		return false, false
	}
	return attachment == nil, attachment != nil && attachment.DeletionTimestamp != nil
}

// AttachedError refuses a disk that this attachment Pod attaches.
func AttachedError(attachment *corev1.Pod) error {
	return attachedToError(attachment.Labels[manifest.LabelDisk], attachment.Labels[manifest.LabelVM])
}

func attachedToError(disk, vmCID string) error {
	return call.InUse(call.CloudError.Errorf("disk %s is attached to VM %s: detach it first", disk, vmCID))
}

// IsCopyPod tells the Pod that copies a disk from its attachment, which has the same name.
func IsCopyPod(pod *corev1.Pod) bool { return pod.Labels[manifest.LabelRole] == manifest.RoleCopy }

// copyRunning reports that the copy reads the disk; one that has not started can be ended at any time.
func copyRunning(pod *corev1.Pod) bool {
	finished, _ := manifest.Outcome(pod)
	return kube.HasRun(manifest.OwnContainerStatus(pod)) && !finished
}

// CopyingError refuses a disk that is being copied.
func CopyingError(pod *corev1.Pod) error {
	return call.InUse(call.CloudError.Errorf(
		"disk %s is being copied to disk %s by update_disk: repeat that call, or wait until Pod %s has ended",
		pod.Labels[manifest.LabelDisk], pod.Annotations[manifest.AnnotationCopiedTo], pod.Name))
}
