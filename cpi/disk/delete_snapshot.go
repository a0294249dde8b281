package disk

import (
	"errors"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// DeleteSnapshot deletes a snapshot, and waits until it is gone. It succeeds if the snapshot does not exist, or is not a
// snapshot of BOSH.
func (s *Session) DeleteSnapshot(cid string) error {
	snapshots := s.VolumeSnapshots()
	snapshot, err := snapshots.Get(s.Ctx, cid)
	switch {
	case errors.Is(err, kube.ErrNotFound), err == nil && !manifest.HasRole(snapshot, manifest.RoleSnapshot):
		return nil
	case errors.Is(err, kube.ErrNotServed):
		return snapshotsNotInstalledError("cannot delete snapshot "+cid, err)
	}
	if err != nil {
		return err
	}
	s.SetSubject(snapshots.Reference(snapshot))
	return snapshots.DeleteAndWait(s.Ctx, snapshot)
}
