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
	pvc, err := s.GetPVC(cid)
	if err != nil {
		return "", err
	}
	s.SetSubject(s.PVCs.Reference(pvc))
	if err := s.checkSnapshottable(pvc); err != nil {
		return "", err
	}
	described, err := manifest.BuildMetadata(metadata)
	if err != nil {
		return "", err
	}
	snapshots, err := s.VolumeSnapshots()
	if err != nil {
		return "", err
	}
	if err := s.flush(pvc.Name); err != nil {
		return "", err
	}
	desired := manifest.VolumeSnapshot(manifest.SnapshotName(uuid.NewString()), s.Director, pvc, described)
	s.SetDetail("snapshot " + desired.Name)
	snapshot, err := snapshots.Create(s.Ctx, desired)
	if errors.Is(err, kube.ErrExists) { // this call's own: the name is new
		snapshot, err = snapshots.Get(s.Ctx, desired.Name)
	}
	switch {
	case errors.Is(err, kube.ErrNotServed):
		return "", call.NotImplemented.Errorf("the cluster has no VolumeSnapshots (snapshot.storage.k8s.io/v1): "+
			"install a CSI driver with snapshots and the snapshot controller, or disable the director's snapshots: %w", err)
	case err != nil:
		return "", err
	}
	if err := s.finishSnapshot(snapshots, snapshot); err != nil {
		detached, cancel := s.Detached(call.CleanupTimeout)
		defer cancel()
		return "", errors.Join(err, snapshots.Delete(detached.Ctx, snapshot))
	}
	return snapshot.Name, nil
}

// finishSnapshot waits until the snapshot can be used. From then on it is the director's: one that a call which was cut
// short has left is told from it by its label.
func (s *Session) finishSnapshot(snapshots *snapshotResource, snapshot *extension.VolumeSnapshot) error {
	if err := s.waitForSnapshot(snapshots, snapshot); err != nil {
		return err
	}
	patch, err := manifest.FinishSnapshot()
	if err != nil {
		return err
	}
	_, err = snapshots.Patch(s.Ctx, snapshot.Name, patch)
	return err
}

// checkSnapshottable refuses a disk whose volume takes no snapshots. What the storage cannot do is NotImplemented, the one
// answer after which the director goes on: see its take_snapshot, which passes over that kind alone.
func (s *Session) checkSnapshottable(pvc *corev1.PersistentVolumeClaim) error {
	if !kube.Bound(pvc) {
		return call.CloudError.Errorf("disk %s has no volume yet: it gets one when it is first attached, and can be snapshot then", pvc.Name)
	}
	volume, err := s.PVs.Get(s.Ctx, pvc.Spec.VolumeName)
	if err != nil {
		return err
	}
	if volume.Spec.CSI == nil {
		return call.NotImplemented.Errorf("disk %s has a volume that no CSI driver has made (%s), and snapshots are for those alone: "+
			"give the disk another storage_class", pvc.Name, volume.Name)
	}
	return nil
}

// snapshotResource are the API's for VolumeSnapshots.
type snapshotResource = kube.Resource[*extension.VolumeSnapshot, *extension.List[extension.VolumeSnapshot]]

func (s *Session) waitForSnapshot(snapshots *snapshotResource, snapshot *extension.VolumeSnapshot) error {
	last := "the snapshot controller has not reported anything: is it running?"
	err := snapshots.Wait(
		s.Ctx,
		kube.Selection{Name: snapshot.Name},
		kube.ListOf(snapshot),
		func(present []*extension.VolumeSnapshot) (bool, error) {
			if len(present) == 0 {
				return false, call.CloudError.Errorf("snapshot %s was deleted while it was being taken", snapshot.Name)
			}
			*snapshot = *present[0]
			status := snapshot.Status
			if status == nil {
				return false, nil
			}
			if status.Error != nil && status.Error.Message != nil {
				last = *status.Error.Message
				if kube.IsPermanentSnapshotError(last) {
					return false, call.NotImplemented.Errorf("snapshot of disk %s: %s. Name a VolumeSnapshotClass of the volume's driver "+
						"with the disk's cloud_property snapshot_class, or make one the default", snapshot.Labels[manifest.LabelDisk], last)
				}
			}
			return status.ReadyToUse != nil && *status.ReadyToUse, nil
		},
	)
	if errors.Is(err, kube.ErrTimeout) {
		return call.WithMessage(err, "snapshot "+snapshot.Name+" did not become ready: "+last)
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
	if !kube.Ready(attachment) || attachment.DeletionTimestamp != nil || IsCopyPod(attachment) {
		return nil
	}
	return s.RunHelperPod(manifest.FlushPod(attachment, s.Director), "disk "+disk+" could not be flushed")
}

// DeleteSnapshot removes a snapshot; one that is not there is what was asked for.
func (s *Session) DeleteSnapshot(cid string) error {
	snapshots, err := s.VolumeSnapshots()
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
	s.SetSubject(snapshots.Reference(snapshot))
	return snapshots.DeleteAndWait(s.Ctx, snapshot)
}
