package vm

import (
	"errors"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Has reports whether the VM exists. It recreates a missing Pod of a VM with disk_strategy: recreate.
func (s *Session) Has(vmCID string) (bool, error) {
	pod, err := s.Pods.Get(s.Ctx, vmCID)
	if err == nil && !mustRecreate(manifest.VMPod{Pod: pod}) {
		return manifest.HasRole(pod, manifest.RoleVM), nil
	}
	if err == nil || errors.Is(err, kube.ErrNotFound) {
		err = s.recreateMissingPod(vmCID)
	}
	if call.VMNotFound.Is(err) {
		return false, nil
	}
	return err == nil, err
}

// SetMetadata sets the director's metadata on the VM Pod, and on the PodTemplate of a VM with disk_strategy: recreate.
func (s *Session) SetMetadata(vmCID string, metadata map[string]any) error {
	desired, err := manifest.BuildMetadata(metadata)
	if err != nil {
		return err
	}
	pod, err := call.PatchMetadata(s.Ctx, s.Pods, vmCID, desired)
	if errors.Is(err, kube.ErrNotFound) {
		if err := s.recreateMissingPod(vmCID); err != nil {
			return err
		}
		pod, err = call.PatchMetadata(s.Ctx, s.Pods, vmCID, desired)
	}
	if err != nil {
		return err
	}
	vmPod := manifest.VMPod{Pod: pod}
	return s.strategy(vmPod.HasRecreateStrategy()).persist(vmPod, manifest.TemplateChange{Metadata: &desired})
}

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

// getWithAttachments returns the VM Pod and the attachment Pods of its disks. It recreates missing Pods of a VM with disk_strategy:
// recreate.
func (s *Session) getWithAttachments(vmCID string) (manifest.VMPod, []manifest.AttachmentPod, error) {
	for wait := kube.NewConflictBackoff(); ; wait(s.Ctx) {
		found, _, err := s.ListVMPods(vmCID)
		if err != nil {
			return manifest.VMPod{}, nil, err
		}
		attachments := manifest.AttachmentPods(found.Items)
		for _, vmPod := range manifest.VMPods(found.Items) {
			if !mustRecreateAny(vmPod, attachments) {
				return vmPod, attachments, nil
			}
		}
		if err := s.recreateMissingPod(vmCID); err != nil {
			return manifest.VMPod{}, nil, err
		}
	}
}
