package disk

import (
	"errors"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// SetMetadata sets the director's metadata on the disk's PVC.
func (s *Session) SetMetadata(cid string, metadata map[string]any) error {
	pvc, err := call.PatchMetadata(s.Ctx, s.PVCs, cid, manifest.RoleDisk, manifest.BuildMetadata(metadata))
	if errors.Is(err, kube.ErrNotFound) || err == nil && !exists(manifest.DiskPVC{PVC: pvc}) {
		return call.DiskNotFoundError(cid)
	}
	return err
}
