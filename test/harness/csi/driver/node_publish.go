package driver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"bosh-kubernetes-cpi/test/harness/csi/device"
)

// NodePublishVolume mounts the staged volume at the target path: a filesystem on a directory, a device on a file.
func (n node) NodePublishVolume(ctx context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	volume, unlock, err := n.lockAttachedVolume(ctx, request, "target path", request.GetTargetPath())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if request.GetStagingTargetPath() == "" {
		return nil, status.Error(codes.FailedPrecondition, "the staging target path is missing: stage the volume first")
	}
	loop, err := n.loopDevice(ctx, volume.ID)
	if err != nil {
		return nil, err
	}
	publish := publishMount
	if request.GetVolumeCapability().GetBlock() != nil {
		publish = publishBlock
	}
	if err := publish(ctx, loop, request); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func publishMount(ctx context.Context, loop string, request *csi.NodePublishVolumeRequest) error {
	target, staging := filepath.Clean(request.GetTargetPath()), filepath.Clean(request.GetStagingTargetPath())
	if _, found, err := mountedFrom(loop, staging); err != nil {
		return err
	} else if !found {
		return status.Errorf(codes.FailedPrecondition, "the volume is not staged at %s", staging)
	}
	readOnly := request.GetReadonly() || isReadOnly(request.GetVolumeCapability())
	mounted, found, err := mountedFrom(loop, target)
	if err != nil {
		return err
	}
	if found {
		if mounted.ReadOnly != readOnly {
			return status.Errorf(codes.AlreadyExists, "the volume is published at %s with read-only %t", target, mounted.ReadOnly)
		}
		return nil
	}
	if err := checkSingleWriter(loop, request, func(m device.MountEntry, number string) bool {
		return m.Number == number && m.Root == "/" && m.Point != staging
	}); err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return toStatusError(err)
	}
	return toStatusError(device.Bind(ctx, staging, target, readOnly))
}

// checkSingleWriter returns FAILED_PRECONDITION, as the spec requires, if the access mode is SINGLE_NODE_SINGLE_WRITER and the volume
// is already published.
func checkSingleWriter(loop string, request *csi.NodePublishVolumeRequest, published func(m device.MountEntry, number string) bool) error {
	if request.GetVolumeCapability().GetAccessMode().GetMode() != csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		return nil
	}
	number, err := device.Number(loop)
	if err != nil {
		return toStatusError(err)
	}
	mounts, err := device.Mounts()
	if err != nil {
		return toStatusError(err)
	}
	index := slices.IndexFunc(mounts, func(m device.MountEntry) bool { return published(m, number) })
	if index >= 0 {
		return status.Errorf(codes.FailedPrecondition, "the volume has a single writer, and is already published at %s", mounts[index].Point)
	}
	return nil
}

func publishBlock(ctx context.Context, loop string, request *csi.NodePublishVolumeRequest) error {
	target := filepath.Clean(request.GetTargetPath())
	_, found, err := device.MountAt(target)
	if err != nil {
		return toStatusError(err)
	}
	if found {
		return checkSameDevice(loop, target)
	}
	if err := checkSingleWriter(loop, request, func(m device.MountEntry, number string) bool {
		mounted, err := device.Number(m.Point)
		return m.Root == "/"+filepath.Base(loop) && err == nil && mounted == number
	}); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return toStatusError(err)
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return toStatusError(err)
	}
	if err := file.Close(); err != nil {
		return toStatusError(err)
	}
	return toStatusError(device.Bind(ctx, loop, target, request.GetReadonly()))
}

func checkSameDevice(loop, path string) error {
	expected, err := device.Number(loop)
	if err != nil {
		return toStatusError(err)
	}
	if mounted, err := device.Number(path); err != nil || mounted != expected {
		return status.Errorf(codes.AlreadyExists, "a device other than %s is mounted at %s", loop, path)
	}
	return nil
}

// NodeUnpublishVolume removes the target path, as the spec requires. It succeeds if the path does not exist.
func (n node) NodeUnpublishVolume(ctx context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	_, target, unlock, err := n.lockVolumeAt(ctx, request.GetVolumeId(), "target path", request.GetTargetPath())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := device.Unmount(ctx, target); err != nil {
		return nil, toStatusError(err)
	}
	// Not RemoveAll: a directory with content was not a mount point of the driver.
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, toStatusError(err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume grows the device and its mounted filesystem to the size of the image.
func (n node) NodeExpandVolume(ctx context.Context, request *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	volume, path, unlock, err := n.lockVolumeAt(ctx, request.GetVolumeId(), "volume path", request.GetVolumePath())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if required := request.GetCapacityRange().GetRequiredBytes(); required > volume.Capacity {
		return nil, status.Errorf(codes.OutOfRange, "volume %s has %d bytes; expand it with the controller first", volume.ID, volume.Capacity)
	}
	info, err := statPath(path)
	if err != nil {
		return nil, err
	}
	loop, err := n.loopDevice(ctx, volume.ID)
	if err != nil {
		return nil, err
	}
	if err := device.UpdateCapacity(ctx, loop); err != nil {
		return nil, toStatusError(err)
	}
	if info.IsDir() {
		mounted, found, err := mountedFrom(loop, path)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, status.Errorf(codes.NotFound, "volume %s is not mounted at %s", volume.ID, path)
		}
		if err := device.Grow(ctx, loop, mounted); err != nil {
			return nil, toStatusError(err)
		}
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: volume.Capacity}, nil
}

func (n node) NodeGetVolumeStats(ctx context.Context, request *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	path := filepath.Clean(request.GetVolumePath())
	if err := requireFields("volume id", request.GetVolumeId(), "volume path", request.GetVolumePath()); err != nil {
		return nil, err
	}
	if _, err := n.store.Volume(request.GetVolumeId()); err != nil {
		return nil, toStatusError(err)
	}
	info, err := statPath(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		total, err := device.Size(ctx, path)
		if err != nil {
			return nil, toStatusError(err)
		}
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: total}}}, nil
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return nil, toStatusError(err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: int64(stat.Blocks) * stat.Bsize, Available: int64(stat.Bavail) * stat.Bsize, Used: int64(stat.Blocks-stat.Bfree) * stat.Bsize},
		{Unit: csi.VolumeUsage_INODES, Total: int64(stat.Files), Available: int64(stat.Ffree), Used: int64(stat.Files - stat.Ffree)},
	}}, nil
}
