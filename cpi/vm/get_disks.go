package vm

import "bosh-kubernetes-cpi/cpi/disk"

// GetDisks returns the CIDs of the disks that are attached to the VM. It recreates attachment Pods that were deleted while the VM
// uses their disks.
func (s *Session) GetDisks(vmCID string) ([]string, error) {
	vmPod, attachments, err := s.getWithAttachments(vmCID)
	if err != nil {
		return nil, err
	}
	for _, attachment := range attachments {
		if state := disk.StateOf(attachment); state.IsDeleted() && !state.IsReleased() && vmPod.DeletionTimestamp == nil {
			s.warnAttachmentTerminating(attachment)
		}
	}
	return s.strategy(vmPod.HasRecreateStrategy()).restoreAndListDisks(vmPod, attachments)
}
