package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"bosh-kubernetes-cpi/test/harness/csi/device"
	"bosh-kubernetes-cpi/test/harness/csi/store"
)

// CreateSnapshot returns when the copy is complete. Therefore, snapshots are always ready to use.
func (c controller) CreateSnapshot(ctx context.Context, request *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if err := requireFields("name", request.GetName(), "source volume id", request.GetSourceVolumeId()); err != nil {
		return nil, err
	}
	unlockName, err := c.locks.lock(ctx, "snapshot named "+request.GetName())
	if err != nil {
		return nil, err
	}
	defer unlockName()
	snapshots, err := c.store.Snapshots()
	if err != nil {
		return nil, toStatusError(err)
	}
	index := slices.IndexFunc(snapshots, func(s store.Snapshot) bool { return s.Name == request.GetName() })
	if index >= 0 {
		existing := snapshots[index]
		if existing.Source != request.GetSourceVolumeId() {
			return nil, status.Errorf(codes.AlreadyExists, "snapshot %s already exists for volume %s", existing.Name, existing.Source)
		}
		return &csi.CreateSnapshotResponse{Snapshot: toCSISnapshot(existing)}, nil
	}
	volume, unlockVolume, err := c.lockVolume(ctx, request.GetSourceVolumeId())
	if err != nil {
		return nil, err
	}
	defer unlockVolume()
	snapshot := store.Snapshot{
		ID: "snapshot-" + uuid.NewString(), Name: request.GetName(), Source: volume.ID, Size: volume.Capacity, Created: time.Now().UTC(),
	}
	imagePath := c.store.SnapshotImage(snapshot.ID)
	if err = c.copyVolume(ctx, volume.ID, imagePath); err == nil {
		err = c.store.PutSnapshot(snapshot)
	}
	if err != nil {
		return nil, toStatusError(errors.Join(err, os.RemoveAll(imagePath)))
	}
	return &csi.CreateSnapshotResponse{Snapshot: toCSISnapshot(snapshot)}, nil
}

// copyVolume copies the volume's content at one point in time. It freezes the volume's filesystems, in all Pods that mount them, until
// the copy is complete. If no filesystem is mounted, it copies the data written so far.
func (c controller) copyVolume(ctx context.Context, volumeID, imagePath string) (err error) {
	source := c.store.VolumeImage(volumeID)
	loops, err := device.LoopDevices(ctx, source)
	if err != nil {
		return err
	}
	for _, loop := range loops {
		thaw, err := device.Freeze(loop)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, thaw()) }() //nolint:gocritic // each loop device stays frozen until the copy is complete
		if err := device.Flush(loop); err != nil {
			return err
		}
	}
	return store.CopyImage(ctx, source, imagePath)
}

func (c controller) DeleteSnapshot(ctx context.Context, request *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if err := requireFields("snapshot id", request.GetSnapshotId()); err != nil {
		return nil, err
	}
	unlock, err := c.locks.lock(ctx, request.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := c.store.DeleteSnapshot(request.GetSnapshotId()); err != nil {
		return nil, toStatusError(fmt.Errorf("delete snapshot %s: %w", request.GetSnapshotId(), err))
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

func toCSISnapshot(snapshot store.Snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: snapshot.ID, SourceVolumeId: snapshot.Source, SizeBytes: snapshot.Size,
		CreationTime: timestamppb.New(snapshot.Created), ReadyToUse: true,
	}
}
