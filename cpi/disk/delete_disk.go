package disk

import (
	"errors"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Delete deletes a disk that no VM has, and waits until its PVC is gone. It deletes the PVC only if the PVC is unchanged since the
// check, because attach_disk changes it. After a conflict, Delete checks again.
func (s *Session) Delete(cid string) error {
	for deletionSent := false; ; deletionSent = true {
		pvc, err := s.read(cid)
		switch {
		case deletionSent && errors.Is(err, kube.ErrNotFound):
			return nil
		case errors.Is(err, kube.ErrNotFound) || err == nil && !manifest.HasRole(pvc, manifest.RoleDisk):
			return call.DiskNotFoundError(cid)
		case err != nil:
			return err
		}
		s.SetSubject(s.PVCs.Reference(pvc.PVC))
		err = s.checkUnattached(pvc)
		if call.CodeDiskInUse.Is(err) && pvc.DeletionTimestamp != nil && exists(pvc) {
			return beingDeletedError(pvc)
		}
		if err != nil {
			return err
		}
		err = s.PVCs.DeleteUnchanged(s.Ctx, pvc.PVC)
		if err == nil {
			return s.waitDeleted(pvc)
		}
		if !errors.Is(err, kube.ErrConflict) {
			return err
		}
	}
}

// waitDeleted waits until the PVC is gone. Kubernetes keeps the PVC until the kubelet has removed the attachment Pod.
func (s *Session) waitDeleted(pvc manifest.DiskPVC) error {
	err := s.PVCs.WaitDeleted(s.Ctx, pvc.PVC)
	if !errors.Is(err, kube.ErrTimeout) {
		return err
	}
	detached, cancel := s.Detached(call.CleanupTimeout)
	defer cancel()
	attachment, getErr := (&Session{detached}).GetAttachment(pvc.Name)
	if getErr != nil {
		return err
	}
	return s.ExplainRemoval(attachment, err)
}
