package disk

import (
	"errors"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/extension"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Snapshot takes a VolumeSnapshot of the disk's volume and waits until it can be used. What the
// machine has written to the disk is flushed first; the snapshot is then as after a power cut at that
// moment, which the filesystem's journal mends when a disk made from it is mounted.
func (s *Session) Snapshot(cid string, metadata map[string]any) (string, error) {
	claim, err := s.Claim(cid)
	if err != nil {
		return "", err
	}
	s.About(s.Claims.Reference(claim))
	if err := s.snapshottable(claim); err != nil {
		return "", err
	}
	described, err := manifest.Describe(metadata)
	if err != nil {
		return "", err
	}
	snapshots, err := s.Snapshots()
	if err != nil {
		return "", err
	}
	if err := s.flush(claim.Name); err != nil {
		return "", err
	}
	wanted := manifest.Snapshot(manifest.SnapshotName(uuid.NewString()), s.Director, claim, described)
	s.Detail("snapshot " + wanted.Name)
	snapshot, err := snapshots.Create(s.Ctx, wanted)
	if errors.Is(err, kube.ErrExists) { // this call's own: the name is new
		snapshot, err = snapshots.Get(s.Ctx, wanted.Name)
	}
	switch {
	case errors.Is(err, kube.ErrNotServed):
		return "", call.NotImplemented.Errorf("the cluster has no VolumeSnapshots (snapshot.storage.k8s.io/v1): "+
			"install a CSI driver with snapshots and the snapshot controller, or disable the director's snapshots: %w", err)
	case err != nil:
		return "", err
	}
	if err := s.finishSnapshot(snapshots, snapshot); err != nil {
		detached, cancel := s.Detached(call.CleanupTime)
		defer cancel()
		return "", errors.Join(err, snapshots.Delete(detached.Ctx, snapshot))
	}
	return snapshot.Name, nil
}

// finishSnapshot waits until the snapshot can be used. From then on it is the director's: one that a call which was cut
// short has left is told from it by its label.
func (s *Session) finishSnapshot(among *snapshots, wanted *extension.VolumeSnapshot) error {
	if err := s.awaitSnapshot(among, wanted); err != nil {
		return err
	}
	patch, err := manifest.FinishSnapshot()
	if err != nil {
		return err
	}
	_, err = among.Patch(s.Ctx, wanted.Name, patch)
	return err
}

// snapshottable refuses a disk whose volume takes no snapshots. What the storage cannot do is NotImplemented, the one
// answer after which the director goes on: see its take_snapshot, which passes over that kind alone.
func (s *Session) snapshottable(disk *corev1.PersistentVolumeClaim) error {
	if !kube.Bound(disk) {
		return call.CloudError.Errorf("disk %s has no volume yet: it gets one when it is first attached, and can be snapshot then", disk.Name)
	}
	volume, err := s.Volumes.Get(s.Ctx, disk.Spec.VolumeName)
	if err != nil {
		return err
	}
	if volume.Spec.CSI == nil {
		return call.NotImplemented.Errorf("disk %s has a volume that no CSI driver has made (%s), and snapshots are for those alone: "+
			"give the disk another storage_class", disk.Name, volume.Name)
	}
	return nil
}

// snapshots are the API's for VolumeSnapshots.
type snapshots = kube.Resource[*extension.VolumeSnapshot, *extension.List[extension.VolumeSnapshot]]

func (s *Session) awaitSnapshot(among *snapshots, wanted *extension.VolumeSnapshot) error {
	last := "the snapshot controller has not reported anything: is it running?"
	err := among.Await(s.Ctx, kube.Selection{Name: wanted.Name}, kube.At(wanted), func(present []*extension.VolumeSnapshot) (bool, error) {
		if len(present) == 0 {
			return false, call.CloudError.Errorf("snapshot %s was deleted while it was being taken", wanted.Name)
		}
		*wanted = *present[0]
		status := wanted.Status
		if status == nil {
			return false, nil
		}
		if status.Error != nil && status.Error.Message != nil {
			last = *status.Error.Message
			if kube.SnapshotHopeless(last) {
				return false, call.NotImplemented.Errorf("snapshot of disk %s: %s. Name a VolumeSnapshotClass of the volume's driver "+
					"with the disk's cloud_property snapshot_class, or make one the default", wanted.Labels[manifest.LabelDisk], last)
			}
		}
		return status.ReadyToUse != nil && *status.ReadyToUse, nil
	})
	if errors.Is(err, kube.ErrTimeout) {
		return call.Explained(err, "snapshot "+wanted.Name+" did not become ready: "+last)
	}
	return err
}

// flush makes the node write out what a machine has written to its disk. A disk that is not attached
// has nothing to flush, nor has one that a copy reads.
func (s *Session) flush(disk string) error {
	attachment, err := s.Pods.Get(s.Ctx, manifest.AttachmentName(disk))
	if errors.Is(err, kube.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !kube.Ready(attachment) || attachment.DeletionTimestamp != nil || IsCopy(attachment) {
		return nil
	}
	return s.RunErrand(manifest.Flush(attachment, s.Director), "disk "+disk+" could not be flushed")
}

// DeleteSnapshot removes a snapshot; one that is not there is what was asked for.
func (s *Session) DeleteSnapshot(cid string) error {
	snapshots, err := s.Snapshots()
	if err != nil {
		return err
	}
	snapshot, err := snapshots.Get(s.Ctx, cid)
	if errors.Is(err, kube.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	s.About(snapshots.Reference(snapshot))
	return snapshots.Remove(s.Ctx, snapshot)
}
