package driver

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
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
	if _, found, err := mountedFrom(loop, target); found || err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return toStatusError(err)
	}
	return toStatusError(device.Bind(ctx, staging, target))
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
	return toStatusError(device.Bind(ctx, loop, target))
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
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, status.Errorf(codes.NotFound, "%s does not exist", path)
	}
	if err != nil {
		return nil, toStatusError(err)
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
