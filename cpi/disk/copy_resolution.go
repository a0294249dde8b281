package disk

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// ResolveCopy is called before a call changes or attaches a disk that the director uses. If update_disk began to copy the disk,
// ResolveCopy abandons the copy, because the disk's data is about to change. If the disk is itself a verified copy, ResolveCopy
// accepts it and deletes the original, because the director now uses the CID of the copy. Nearly all disks are neither. ResolveCopy
// returns the current PVC of the disk.
func (s *Session) ResolveCopy(pvc manifest.DiskPVC) (manifest.DiskPVC, error) {
	pvc, err := s.acceptCopy(pvc)
	if err != nil {
		return pvc, err
	}
	return s.abandonCopy(pvc)
}

// CheckNoPendingCopy returns an error if the disk is being copied or is a copy. After ResolveCopy, this means that an update_disk
// started in the meantime.
func CheckNoPendingCopy(pvc manifest.DiskPVC) error {
	if pvc.CopiedTo() == "" && pvc.CopyState() == "" {
		return nil
	}
	return call.CodeDiskInUse.Errorf("disk %s is being copied by a concurrent update_disk; retry", pvc.Name)
}

// acceptCopy accepts a verified copy, deletes the original, and makes the copy an ordinary disk. No call abandons an accepted copy. An
// incomplete copy is an error.
func (s *Session) acceptCopy(pvc manifest.DiskPVC) (manifest.DiskPVC, error) {
	originalCID := pvc.CopyOf()
	switch pvc.CopyState() {
	case "":
		return pvc, nil
	case manifest.CopyIncomplete:
		return pvc, call.CodeDiskCopyIncomplete.Errorf("disk %s is an incomplete copy of disk %s; rerun update_disk", pvc.Name, originalCID)
	case manifest.CopyVerified:
		accepted, err := s.advanceCopy(pvc, manifest.CopyVerified, manifest.CopyAccepted)
		if errors.Is(err, kube.ErrConflict) {
			if pvc, err = s.GetPVC(pvc.Name); err != nil {
				return pvc, err
			}
			return s.acceptCopy(pvc) // another call accepted or abandoned the copy
		}
		if err != nil {
			return pvc, err
		}
		pvc = accepted
	}
	if err := s.deleteOriginal(originalCID, pvc.Name); err != nil {
		return pvc, err
	}
	if err := s.deleteCopyPod(originalCID); err != nil { // otherwise the PVC of the original exists until the copy Pod is gone
		return pvc, err
	}
	patch, err := manifest.FinishCopyPatch()
	if err != nil {
		return pvc, err
	}
	finished, err := s.patchJSON(pvc.Name, patch)
	if errors.Is(err, kube.ErrConflict) || errors.Is(err, kube.ErrNotFound) { // another call finished the copy, or deleted the disk
		return s.GetPVC(pvc.Name)
	}
	return finished, err
}

// advanceCopy changes the state of the copy (manifest.LabelCopy). It returns kube.ErrConflict if the current state is not from, and
// DiskNotFound if the copy is gone.
func (s *Session) advanceCopy(pvc manifest.DiskPVC, from, to string) (manifest.DiskPVC, error) {
	patch, err := manifest.AdvanceCopyPatch(pvc, from, to)
	if err != nil {
		return pvc, err
	}
	return s.patchCopyState(pvc, patch)
}

// patchCopyState returns kube.ErrConflict if the patch does not apply to the current state, and DiskNotFound if the copy is gone.
func (s *Session) patchCopyState(pvc manifest.DiskPVC, patch []byte) (manifest.DiskPVC, error) {
	patched, err := s.patchJSON(pvc.Name, patch)
	if errors.Is(err, kube.ErrNotFound) {
		return pvc, call.DiskNotFoundError(pvc.Name)
	}
	return patched, err
}

// deleteOriginal deletes the disk that the successor replaces, if it is free and unchanged since that check. It does nothing if the
// disk records another successor.
func (s *Session) deleteOriginal(originalCID, successor string) error {
	for {
		original, err := s.GetPVC(originalCID)
		if call.DiskNotFound.Is(err) || err == nil && original.CopiedTo() != successor {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.checkUnattached(original); err != nil {
			return err
		}
		if err := s.PVCs.DeleteUnchanged(s.Ctx, original.PVC); !errors.Is(err, kube.ErrConflict) {
			return err
		}
	}
}

// abandonCopy deletes the incomplete or verified copy of a disk that is about to be used, because the disk's data will change. It
// returns an error if the copy Pod is running, or if the copy replaced the disk. After a conflict with another call, it decides
// again.
func (s *Session) abandonCopy(pvc manifest.DiskPVC) (manifest.DiskPVC, error) {
	for {
		successor := pvc.CopiedTo()
		if successor == "" {
			return pvc, nil
		}
		abandoned, err := s.tryAbandonCopy(pvc, successor)
		if !errors.Is(err, kube.ErrConflict) {
			return abandoned, err
		}
		if pvc, err = s.GetPVC(pvc.Name); err != nil {
			return pvc, err
		}
	}
}

// tryAbandonCopy is one attempt of abandonCopy. It returns kube.ErrConflict if the disk or the copy changed since it was read.
func (s *Session) tryAbandonCopy(pvc manifest.DiskPVC, successor string) (manifest.DiskPVC, error) {
	if err := s.checkUnattached(pvc); err != nil {
		return pvc, err
	}
	if err := s.deleteCopyPod(pvc.Name); err != nil {
		return pvc, err
	}
	copyPVC, err := s.GetPVC(successor)
	switch {
	case call.DiskNotFound.Is(err):
	case err != nil:
		return pvc, err
	case copyPVC.CopyOf() != pvc.Name: // it is not a copy of this disk: keep it
	default:
		if err := s.deleteCopyPVC(pvc.Name, copyPVC); err != nil {
			return pvc, err
		}
	}
	return s.clearCopyRecord(pvc)
}

// deleteCopyPVC deletes a copy that the director does not use. It marks a verified copy as incomplete first, so that no other call
// can accept it. It keeps a copy by an update_disk that started after this call: the director knows its CID.
func (s *Session) deleteCopyPVC(disk string, copyPVC manifest.DiskPVC) error {
	switch copyPVC.CopyState() {
	case manifest.CopyIncomplete:
	case manifest.CopyVerified:
		if s.startedBeforeCopy(copyPVC) {
			return call.CodeDiskBusy.Errorf("disk %s was copied to disk %s by an update_disk that started after this call; "+
				"retry this call to delete the copy, or use disk %[2]s", disk, copyPVC.Name)
		}
		patch, err := manifest.InvalidateCopyPatch(copyPVC)
		if err != nil {
			return err
		}
		if copyPVC, err = s.patchCopyState(copyPVC, patch); err != nil {
			if call.DiskNotFound.Is(err) {
				return nil
			}
			return err
		}
	default:
		return call.CodeDiskReplaced.Errorf("disk %s was replaced by disk %s; use that disk", disk, copyPVC.Name)
	}
	return s.PVCs.DeleteUnchanged(s.Ctx, copyPVC.PVC)
}

// startedBeforeCopy reports whether this call started before the update_disk that owns the copy. Within the accuracy of the API server's
// clock, the times in the IDs decide: they are more precise for calls of one host. The ID of an update_disk is ignored if its time is
// after the copy was written: the clock of that host is fast.
func (s *Session) startedBeforeCopy(copyPVC manifest.DiskPVC) bool {
	written := call.LastWritten(copyPVC)
	if s.TimeFromStart(written).Abs() > call.ClockTolerance {
		return s.StartedBeforeOwner(copyPVC)
	}
	owner := timeOf(manifest.CallOf(copyPVC))
	return timeOf(s.ID).Before(owner) && owner.Before(written.Add(call.ClockTolerance))
}

// timeOf returns the time in the ID of a call, or zero if it is not an ID; see call.NewID.
func timeOf(callID string) time.Time {
	id, err := uuid.Parse(callID)
	if err != nil || id.Version() != 7 {
		return time.Time{}
	}
	return time.Unix(id.Time().UnixTime())
}

// clearCopyRecord removes the record of a copy from the disk's PVC. It returns kube.ErrConflict if the PVC changed since it was
// read.
func (s *Session) clearCopyRecord(pvc manifest.DiskPVC) (manifest.DiskPVC, error) {
	patch, err := manifest.AbandonCopyPatch(pvc)
	if err != nil {
		return pvc, err
	}
	return s.patch(pvc.Name, patch)
}

// deleteCopyPod deletes the disk's copy Pod, and waits until its node releases both volumes. It returns an error if the Pod is
// running.
func (s *Session) deleteCopyPod(disk string) error {
	for {
		pod, err := s.getDiskPod(disk)
		switch {
		case errors.Is(err, kube.ErrNotFound) || err == nil && !pod.IsCopy():
			return nil
		case err != nil:
			return err
		case pod.DeletionTimestamp == nil && isReading(manifest.CopyPod(pod)):
			return CopyingError(manifest.CopyPod(pod))
		}
		if err = s.Pods.DeleteUnchanged(s.Ctx, pod.Pod); err == nil {
			return s.WaitForDeletion(pod.Pod)
		}
		if !errors.Is(err, kube.ErrConflict) {
			return err
		}
	}
}
