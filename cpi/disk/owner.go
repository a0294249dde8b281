package disk

import (
	"errors"
	"slices"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Every change of the owner record (manifest.DiskOwner) is a compare-and-swap: the patch either contains the resourceVersion of the PVC on
// which the change is based, or tests the values that it replaces. After a conflict, the PVC is read and the change is decided again.
// "Disk ownership" in docs/development/architecture.md describes the states, the transitions and the reasons.

// AssignAndStart makes the attachment Pod the owner of the disk, for its VM, and removes its scheduling gate. validate decides
// whether the VM can become the owner of the disk in its current state. If the Pod already is the owner, AssignAndStart only
// removes the gate.
func (s *Session) AssignAndStart(pvc manifest.DiskPVC, attachment manifest.AttachmentPod,
	validate func(manifest.DiskPVC) error) (manifest.DiskPVC, manifest.AttachmentPod, error) {

	owner := attachment.OwnerRecord()
	name := pvc.Name
	pvc, err := s.assignOwner(pvc, owner, validate)
	if call.DiskNotFound.Is(err) {
		err = deletedDuringAttachError(name, owner.VM)
	}
	if err != nil {
		return pvc, attachment, err
	}
	attachment, err = s.startAttachment(attachment)
	return pvc, attachment, err
}

func deletedDuringAttachError(cid, vmCID string) error {
	return call.CodeDiskNotFound.Errorf("cannot attach disk %s to VM %s: the disk was deleted by a concurrent call", cid, vmCID)
}

// assignOwner records owner as the owner of the disk. It does nothing if owner is already recorded. After a conflict it reads the PVC,
// checks that the Pod of owner still exists, and calls validate again. The check is not necessary before the first attempt: the PVC was
// read before the Pod, so an owner in it cannot be a newer Pod of the same name.
func (s *Session) assignOwner(
	pvc manifest.DiskPVC, owner manifest.DiskOwner, validate func(manifest.DiskPVC) error) (manifest.DiskPVC, error) {

	for {
		if current, ok := pvc.Owner(); ok && current == owner {
			return pvc, nil
		}
		if err := validate(pvc); err != nil {
			return pvc, err
		}
		assigned, err := s.patch(pvc.Name, manifest.AssignDiskPatch(pvc, owner))
		switch {
		case err == nil && assigned.DeletionTimestamp != nil:
			return assigned, call.DiskNotFoundError(pvc.Name)
		case err == nil:
			return assigned, nil
		case !errors.Is(err, kube.ErrConflict) && !errors.Is(err, kube.ErrNotFound):
			return pvc, err
		}
		if pvc, err = s.GetPVC(pvc.Name); err != nil {
			return pvc, err
		}
		if err := s.checkPodExists(manifest.AttachmentName(pvc.Name), owner.Pod); err != nil {
			return pvc, err
		}
	}
}

// MarkFormatted records how the VM has the disk, after the attachment Pod attached it: on the PVC, and for the program of the Pod. It fails
// if that Pod no longer owns the disk.
func (s *Session) MarkFormatted(pvc manifest.DiskPVC, attachment manifest.AttachmentPod) error {
	if !pvc.IsFormatted() {
		marked, err := s.PVCs.PatchJSON(s.Ctx, pvc.Name, manifest.MarkFormattedPatch(attachment))
		switch {
		case errors.Is(err, kube.ErrNotFound), err == nil && marked.DeletionTimestamp != nil:
			return deletedDuringAttachError(pvc.Name, attachment.VM())
		case errors.Is(err, kube.ErrConflict):
			return call.CodeDiskBusy.Errorf("cannot attach disk %s: it was detached by a concurrent call; retry", pvc.Name)
		case err != nil:
			return err
		}
	}
	if !attachment.LacksFormattedRecord() {
		return nil
	}
	_, err := s.Pods.Patch(s.Ctx, attachment.Name, manifest.RecordFormattedPatch(attachment))
	if errors.Is(err, kube.ErrNotFound) || errors.Is(err, kube.ErrConflict) { // a Pod that is gone does not start again
		return nil
	}
	return err
}

// Release removes the owner record if owner still owns the disk. It returns the remaining owner: none, or another one. A disk that does not
// exist has none.
func (s *Session) Release(cid string, owner manifest.DiskOwner) (remaining manifest.DiskOwner, err error) {
	_, remaining, err = s.release(cid, owner)
	return remaining, err
}

// release is like Release. released is false if the record was gone already, or if the response to the request that removed it was lost.
//
// A conflict does not mean that the disk has another owner: a webhook may have caused it, or the record only names the VM, because somebody
// removed the annotation. While the disk has this owner, release tries again until the context ends.
func (s *Session) release(cid string, owner manifest.DiskOwner) (released bool, remaining manifest.DiskOwner, err error) {
	for pause := kube.NewConflictBackoff(); ; {
		_, err := s.PVCs.PatchJSON(s.Ctx, cid, manifest.ReleaseDiskPatch(owner))
		if !errors.Is(err, kube.ErrConflict) {
			return err == nil, remaining, kube.IgnoreNotFound(err)
		}
		pvc, readErr := s.read(cid)
		if readErr != nil {
			return false, remaining, kube.IgnoreNotFound(readErr)
		}
		current, ok := pvc.Owner()
		switch {
		case current != owner && current == manifest.DiskOwner{VM: owner.VM} && owner.VM != "":
			owner = current
		case current != owner && !ok:
			return false, current, s.invalidRecordError(pvc)
		case current != owner:
			return false, current, nil
		case !pause(s.Ctx):
			return false, current, err
		}
	}
}

// ReleaseCanceled is like Release, for the owner record of an attachment Pod that is gone, and that a call may not have recorded yet. That
// call can no longer record it.
func (s *Session) ReleaseCanceled(cid string, owner manifest.DiskOwner) (remaining manifest.DiskOwner, err error) {
	for {
		released, remaining, err := s.release(cid, owner)
		if released || err != nil {
			return remaining, err
		}
		if prevented, err := s.preventAssignment(cid, owner); prevented || err != nil {
			return remaining, err
		}
	}
}

// preventAssignment changes the PVC, so that a call that read it before can no longer record owner. The attachment Pod of owner is gone.
// prevented is false if owner is already recorded.
func (s *Session) preventAssignment(cid string, owner manifest.DiskOwner) (prevented bool, err error) {
	for {
		pvc, err := s.read(cid)
		if err != nil {
			err = kube.IgnoreNotFound(err)
			return err == nil, err
		}
		if current, _ := pvc.Owner(); current == owner {
			return false, nil
		}
		if _, err = s.patch(cid, manifest.AdoptPatch(pvc.PVC, s.ID)); !errors.Is(err, kube.ErrConflict) {
			err = kube.IgnoreNotFound(err)
			return err == nil, err
		}
	}
}

// ReleaseAll releases all disks of a VM that is gone, and reports whether there were any.
func (s *Session) ReleaseAll(vmCID string) (released bool, err error) {
	disks, err := s.ListOwnedBy(vmCID)
	if err != nil {
		return false, err
	}
	for _, pvc := range disks {
		owner, _ := pvc.Owner()
		if _, err := s.Release(pvc.Name, owner); err != nil {
			return true, err
		}
	}
	return len(disks) > 0, nil
}

// ListOwnedBy returns the PVCs of the disks that the VM owns.
func (s *Session) ListOwnedBy(vmCID string) ([]manifest.DiskPVC, error) {
	found, err := s.PVCs.List(s.Ctx, kube.Selection{
		Labels: manifest.LabelVM + "=" + vmCID + "," + manifest.LabelRole + "=" + manifest.RoleDisk,
	})
	return manifest.NewDiskPVCs(found.Items), err
}

// OwningVM returns the CID of the VM that has the disk, or "". It does not depend on the attachment Pod, which another client may
// delete.
//
// A VM with a finished Pod has no disks. A VM with disk_strategy: recreate has the disks that are volumes of its Pod or PodTemplate. If
// the owner record is invalid, or names a VM that does not exist, OwningVM returns an error, because the disk may still be in use.
func (s *Session) OwningVM(pvc manifest.DiskPVC) (string, error) {
	owner, ok := pvc.Owner()
	switch {
	case !ok:
		return "", s.invalidRecordError(pvc)
	case owner.VM == "":
		return "", nil
	}
	vmCID := owner.VM
	pod, err := s.Pods.Get(s.Ctx, vmCID)
	vmPod := manifest.VMPod{Pod: pod}
	switch {
	case err == nil && !vmPod.HasRecreateStrategy() && kube.IsFinished(pod):
		return "", nil
	case err == nil && (!vmPod.HasRecreateStrategy() || slices.Contains(vmPod.DiskCIDs(), pvc.Name)):
		return vmCID, nil
	case err != nil && !errors.Is(err, kube.ErrNotFound):
		return "", err
	}
	template, err := s.GetPodTemplate(vmCID)
	switch {
	case call.VMNotFound.Is(err):
		return "", call.CodeDiskOwnerMissing.Errorf("disk %s is recorded as attached to VM %s, which does not exist; "+
			"remove the record with %s, or release the disk with %s",
			pvc.Name, vmCID, call.DeleteVMCommand(pvc.Deployment(), vmCID), s.repairCommand())
	case err != nil:
		return "", err
	case slices.Contains(manifest.DiskCIDs(template.Template.Spec), pvc.Name):
		return vmCID, nil
	}
	return "", nil
}

// invalidRecordError returns the error for a PVC with an invalid owner record.
func (s *Session) invalidRecordError(pvc manifest.DiskPVC) error {
	owner, _ := pvc.Owner()
	return call.CodeDiskOwnerInvalid.Errorf("the owner record of disk %s is invalid: label %s is %q, annotation %s is %q; "+
		"repair it with %s", pvc.Name, manifest.LabelVM, owner.VM, manifest.AnnotationOwner, owner.Pod, s.repairCommand())
}

// repairCommand returns the command that repairs owner records, for messages.
func (s *Session) repairCommand() string {
	return "`kubectl bosh collect --director " + s.Director + " --confirm`"
}

// CheckFreeFor returns an error if a VM other than this one has the disk, or if the owner record is invalid. With vmCID "", no VM
// may have the disk.
func (s *Session) CheckFreeFor(pvc manifest.DiskPVC, vmCID string) error {
	if owner, ok := pvc.Owner(); ok && owner.VM == vmCID {
		return nil
	}
	owningVM, err := s.OwningVM(pvc)
	if err != nil || owningVM == "" {
		return err
	}
	return s.attachedError(pvc.Name, owningVM)
}
