package vm

import (
	"errors"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// SetMetadata sets the director's metadata on the VM Pod, and on the PodTemplate of a VM with disk_strategy: recreate.
func (s *Session) SetMetadata(vmCID string, metadata map[string]any) error {
	desired := manifest.BuildMetadata(metadata)
	pod, err := call.PatchMetadata(s.Ctx, s.Pods, vmCID, manifest.RoleVM, desired)
	if errors.Is(err, kube.ErrNotFound) {
		if err := s.recreateMissingPod(vmCID); err != nil {
			return err
		}
		pod, err = call.PatchMetadata(s.Ctx, s.Pods, vmCID, manifest.RoleVM, desired)
	}
	vmPod := manifest.VMPod{Pod: pod}
	if err != nil || !vmPod.HasRecreateStrategy() {
		return err
	}
	return recreateStrategy{s: s}.persist(vmPod, manifest.TemplateChange{Metadata: &desired})
}
