package disk

import (
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Create creates a disk and returns its CID. It does not wait for a volume, because a StorageClass with volumeBindingMode
// WaitForFirstConsumer provisions the volume only when the disk is first attached.
//
// Create ignores the CID of the VM for which the disk is intended: a PVC cannot request a zone from a StorageClass with
// volumeBindingMode Immediate. (Some provisioners would read the annotation volume.kubernetes.io/selected-node, but only the
// scheduler may set it.)
func (s *Session) Create(sizeMiB int64, properties json.RawMessage, _ *string) (cid string, err error) {
	if err := checkSize(sizeMiB); err != nil {
		return "", err
	}
	desired, err := parseProperties(properties)
	if err != nil {
		return "", err
	}
	if desired.VolumeAttributesClass != "" {
		if err := s.checkAttributesClassExists(desired.VolumeAttributesClass); err != nil {
			return "", err
		}
	}
	disk := desired.buildDisk(manifest.DiskName(uuid.NewString()), s.Director, sizeMiB)
	disk.Namespace = s.Namespace
	// The name is new: if the PVC exists, an earlier attempt of this request created it, and the response was lost.
	pvc, err := s.PVCs.Create(s.Ctx, disk.PVC().PVC)
	switch {
	case err == nil:
		s.SetSubject(s.PVCs.Reference(pvc))
	case !errors.Is(err, kube.ErrExists):
		return "", err
	}
	return disk.Name, nil
}
