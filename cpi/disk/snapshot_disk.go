package disk

import (
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/extension"
)

// Snapshot creates a VolumeSnapshot of the disk's volume, and waits until it is ready to use. Before that, it makes the VM's node
// write cached data to its disks. The snapshot is crash-consistent: it contains the disk as after a power failure at that moment.
// The filesystem replays its journal when a disk with the content of the snapshot is mounted.
func (s *Session) Snapshot(cid string, metadata map[string]any) (string, error) {
	pvc, err := s.GetPVC(cid)
	if err != nil {
		return "", err
	}
	s.SetSubject(s.PVCs.Reference(pvc.PVC))
	if err := s.checkSnapshottable(pvc); err != nil {
		return "", err
	}
	snapshots := s.VolumeSnapshots()
	if err := s.flush(pvc.Name); err != nil {
		return "", err
	}
	desired := manifest.VolumeSnapshot(manifest.SnapshotName(uuid.NewString()), s.Director, pvc, manifest.BuildMetadata(metadata))
	s.SetDetail("snapshot " + desired.Name)
	snapshot, err := snapshots.Create(s.Ctx, desired)
	if errors.Is(err, kube.ErrExists) { // created by an earlier attempt of this request, because the name is new
		snapshot, err = snapshots.Get(s.Ctx, desired.Name)
	}
	switch {
	case errors.Is(err, kube.ErrNotServed):
		return "", snapshotsNotInstalledError("cannot take a snapshot", err)
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

func snapshotsNotInstalledError(message string, err error) error {
	return call.CodeSnapshotUnsupported.Errorf("%s: the VolumeSnapshot API (snapshot.storage.k8s.io/v1) is not installed: %w; "+
		"install the snapshot controller and a CSI driver that supports snapshots, or disable the director's snapshots", message, err)
}

// finishSnapshot waits until the snapshot is ready to use, and then removes its label manifest.LabelIncomplete. Snapshots of
// interrupted calls keep that label, and garbage collection deletes them.
func (s *Session) finishSnapshot(snapshots *snapshotResource, snapshot *extension.VolumeSnapshot) error {
	if err := s.waitForSnapshot(snapshots, snapshot); err != nil {
		return err
	}
	_, err := snapshots.Patch(s.Ctx, snapshot.Name, manifest.FinishSnapshotPatch(snapshot))
	return err
}

// checkSnapshottable returns an error if no snapshot of the disk's volume can be taken. If the storage does not support snapshots,
// the error is NotImplemented: the only kind that the director ignores when it takes a snapshot (take_snapshot in bosh-director).
func (s *Session) checkSnapshottable(pvc manifest.DiskPVC) error {
	if !kube.HasVolume(pvc.PVC) {
		return call.CodeDiskWithoutVolume.Errorf("cannot take a snapshot of disk %s: "+
			"it does not have a volume yet; attach it to a VM first", pvc.Name)
	}
	volume, err := s.PVs.Get(s.Ctx, pvc.Spec.VolumeName)
	if err != nil {
		return err
	}
	if volume.Spec.CSI == nil {
		return call.CodeSnapshotUnsupported.Errorf("cannot take a snapshot of disk %s: volume %s was not provisioned by a CSI driver; "+
			"recreate the disk with a storage_class of a CSI driver", pvc.Name, volume.Name)
	}
	return nil
}

// snapshotResource is the API client for VolumeSnapshots.
type snapshotResource = kube.Resource[*extension.VolumeSnapshot, *extension.List[extension.VolumeSnapshot]]

// waitForSnapshot waits until the snapshot is ready to use, and updates it.
func (s *Session) waitForSnapshot(snapshots *snapshotResource, snapshot *extension.VolumeSnapshot) error {
	last := "the snapshot controller reported no status; check that it is running"
	err := snapshots.Wait(
		s.Ctx,
		kube.Selection{Name: snapshot.Name},
		kube.ListOf(snapshot),
		func(present []*extension.VolumeSnapshot) (bool, error) {
			if len(present) == 0 {
				return false, call.CodeSnapshotDeleted.Errorf("snapshot %s was deleted before it was ready to use; retry", snapshot.Name)
			}
			*snapshot = *present[0]
			status := snapshot.Status
			if status == nil {
				return false, nil
			}
			if status.Error != nil && status.Error.Message != nil {
				last = *status.Error.Message
				if isPermanentSnapshotError(last) {
					return false, call.CodeSnapshotUnsupported.Errorf("cannot take a snapshot of disk %s: %s; "+
						"set cloud_properties.snapshot_class to a VolumeSnapshotClass of the volume's driver, or make one the default",
						manifest.DiskOf(snapshot), last)
				}
			}
			return status.ReadyToUse != nil && *status.ReadyToUse, nil
		},
	)
	if errors.Is(err, kube.ErrTimeout) {
		return call.CodeSnapshotTimeout.Wrap(call.WithMessage(err, "timed out waiting for snapshot "+snapshot.Name+": "+last), false)
	}
	return err
}

// isPermanentSnapshotError reports whether a VolumeSnapshot's error is permanent, because there is no suitable CSI driver or
// VolumeSnapshotClass. It recognizes the messages of external-snapshotter (pkg/common-controller/snapshot_controller.go) and gRPC.
func isPermanentSnapshotError(message string) bool {
	return slices.ContainsFunc([]string{
		"Failed to set default snapshot class with error",
		"Failed to get snapshot class with error",
		"cannot find CSI PersistentVolumeSource for volume",
		"code = Unimplemented",
	}, func(phrase string) bool { return strings.Contains(message, phrase) })
}

// flush runs the flush Pod, which makes the node of an attached disk write cached data to its disks. It does nothing for a disk
// that is not attached.
func (s *Session) flush(disk string) error {
	attachment, err := s.GetAttachment(disk)
	if err != nil {
		return kube.IgnoreNotFound(err)
	}
	if state := StateOf(attachment); !state.HasPublished() || state.IsDeleted() {
		return nil
	}
	nodeImage, err := s.NodeImageReference()
	if err != nil {
		return err
	}
	flushPod := manifest.FlushPod(attachment, s.Director, nodeImage)
	return s.RunHelperPod(call.CodeDiskFlushFailed, flushPod, "cannot flush disk "+disk)
}
