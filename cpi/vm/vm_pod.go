package vm

import (
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

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
