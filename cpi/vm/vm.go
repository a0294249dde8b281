package vm

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Has reports whether the VM exists. It recreates a missing Pod of a recreated VM.
func (s *Session) Has(vmCID string) (bool, error) {
	pod, err := s.Pods.Get(s.Ctx, vmCID)
	if err == nil && keepsPod(pod) {
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

// SetMetadata sets the director's metadata on the VM Pod, and on the PodTemplate of a recreated VM.
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
	return s.strategyForPod(pod).persist(pod, manifest.TemplateChange{Metadata: &desired})
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
	return s.strategyForPod(vmPod).restoreAndListDisks(vmPod, attachments)
}

// diskCIDs returns the CIDs of the disks that these Pods attach.
func diskCIDs(attachments []*corev1.Pod) []string {
	disks := []string{}
	for _, attachment := range attachments {
		disks = append(disks, manifest.DiskOf(attachment))
	}
	return disks
}

// getWithAttachments returns the VM Pod and the attachment Pods of its disks. It recreates missing Pods of a recreated VM.
func (s *Session) getWithAttachments(vmCID string) (vmPod *corev1.Pod, attachments []*corev1.Pod, err error) {
	for wait := kube.NewConflictBackoff(); ; wait(s.Ctx) {
		found, _, err := s.ListVMPods(vmCID)
		if err != nil {
			return nil, nil, err
		}
		attachments := call.AttachmentPods(found.Items)
		for _, vmPod := range call.VMPods(found.Items) {
			if isComplete(vmPod, attachments) {
				return vmPod, attachments, nil
			}
		}
		if err := s.recreateMissingPod(vmCID); err != nil {
			return nil, nil, err
		}
	}
}
