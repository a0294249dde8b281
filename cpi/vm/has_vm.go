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
