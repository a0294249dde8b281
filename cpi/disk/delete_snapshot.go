package disk

import (
	"errors"

	"bosh-kubernetes-cpi/kube"
)

// DeleteSnapshot deletes a snapshot, and waits until it is gone. It succeeds if the snapshot does not exist.
func (s *Session) DeleteSnapshot(cid string) error {
	snapshots := s.VolumeSnapshots()
	snapshot, err := snapshots.Get(s.Ctx, cid)
	if errors.Is(err, kube.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	s.SetSubject(snapshots.Reference(snapshot))
	return snapshots.DeleteAndWait(s.Ctx, snapshot)
}
