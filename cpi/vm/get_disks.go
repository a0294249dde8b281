package vm

// GetDisks returns the CIDs of the disks that are attached to the VM. It recreates attachment Pods that were deleted while the VM
// uses their disks.
func (s *Session) GetDisks(vmCID string) ([]string, error) {
	vmPod, attachments, err := s.getWithAttachments(vmCID)
	if err != nil {
		return nil, err
	}
	for _, attachment := range attachments {
		if attachment.DeletionTimestamp != nil && vmPod.DeletionTimestamp == nil && !exclusivityCheckPassed(attachment) {
			s.warnAttachmentTerminating(attachment)
		}
	}
	return s.strategy(vmPod.HasRecreateStrategy()).restoreAndListDisks(vmPod, attachments)
}
