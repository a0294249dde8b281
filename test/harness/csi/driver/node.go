package driver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"bosh-kubernetes-cpi/test/harness/csi/device"
	"bosh-kubernetes-cpi/test/harness/csi/store"
)

type node struct {
	csi.UnimplementedNodeServer
	*Driver
}

func (n node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	wrap := func(kind csi.NodeServiceCapability_RPC_Type) *csi.NodeServiceCapability {
		return &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: kind}}}
	}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: serviceCapabilities(wrap,
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
	)}, nil
}

func (n node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.options.Node, AccessibleTopology: topology(n.options.Node)}, nil
}

// lockVolumeAt is like lockVolume, for a call with a path. It also returns the cleaned path. name is the name of the path in errors.
func (n node) lockVolumeAt(ctx context.Context, id, name, path string) (volume store.Volume, clean string, unlock func(), err error) {
	if err := requireFields("volume id", id, name, path); err != nil {
		return volume, "", nil, err
	}
	volume, unlock, err = n.lockVolume(ctx, id)
	return volume, filepath.Clean(path), unlock, err
}

// lockAttachedVolume is like lockVolumeFor, for a call with a path. It fails unless the volume is attached to this node.
func (n node) lockAttachedVolume(ctx context.Context, request capabilityRequest, name, path string) (volume store.Volume, unlock func(), err error) {
	if err := requireFields("volume id", request.GetVolumeId(), name, path); err != nil {
		return volume, nil, err
	}
	volume, unlock, err = n.lockVolumeFor(ctx, request)
	if err == nil && volume.Published != n.options.Node {
		unlock()
		err = status.Errorf(codes.FailedPrecondition, "volume %s is attached to node %q, not %q", volume.ID, volume.Published, n.options.Node)
	}
	return volume, unlock, err
}

// NodeStageVolume creates a loop device for the volume. It also formats a blank filesystem volume, mounts it at the staging path, and
// grows it to the device's size. The filesystem is smaller than the device after a restore to a larger volume.
func (n node) NodeStageVolume(ctx context.Context, request *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	volume, unlock, err := n.lockAttachedVolume(ctx, request, "staging target path", request.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	defer unlock()
	imagePath := n.store.VolumeImage(volume.ID)
	existing, err := device.LoopDevices(ctx, imagePath)
	if err != nil {
		return nil, toStatusError(err)
	}
	if err := stage(ctx, imagePath, filepath.Clean(request.GetStagingTargetPath()), request.GetVolumeCapability()); err != nil {
		if len(existing) == 0 {
			// The kubelet does not unstage a volume after a failure to stage it.
			err = errors.Join(err, device.Detach(context.WithoutCancel(ctx), imagePath))
		}
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

func stage(ctx context.Context, imagePath, path string, capability *csi.VolumeCapability) error {
	loop, err := device.Attach(ctx, imagePath)
	if err != nil {
		return toStatusError(err)
	}
	if err := device.UpdateCapacity(ctx, loop); err != nil {
		return toStatusError(err)
	}
	if capability.GetBlock() != nil {
		return nil
	}
	fsType := filesystem(capability)
	mounted, found, err := mountedFrom(loop, path)
	if err != nil {
		return err
	}
	if found && mounted.Type != fsType {
		return status.Errorf(codes.AlreadyExists, "%s is staged with %s, not %s", path, mounted.Type, fsType)
	}
	if found {
		return nil
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return toStatusError(err)
	}
	options := slices.Clone(capability.GetMount().GetMountFlags())
	if fsType == "xfs" {
		options = append(options, "nouuid") // a restored volume has the UUID of its source
	}
	return toStatusError(mountFilesystem(ctx, loop, path, fsType, options))
}

func mountFilesystem(ctx context.Context, loop, path, fsType string, options []string) error {
	if err := device.Format(ctx, loop, fsType); err != nil {
		return err
	}
	if err := device.GrowUnmounted(ctx, loop, fsType); err != nil {
		return err
	}
	if err := device.Mount(ctx, loop, path, fsType, options); err != nil {
		return err
	}
	if err := device.Grow(ctx, loop, device.MountEntry{Type: fsType, Point: path}); err != nil {
		return errors.Join(err, device.Unmount(context.WithoutCancel(ctx), path))
	}
	return nil
}

// mountedFrom returns the mount at the path. It returns ALREADY_EXISTS if another device is mounted there.
func mountedFrom(loop, path string) (device.MountEntry, bool, error) {
	number, err := device.Number(loop)
	if err != nil {
		return device.MountEntry{}, false, toStatusError(err)
	}
	mounted, found, err := device.MountAt(path)
	if err != nil {
		return mounted, found, toStatusError(err)
	}
	if found && mounted.Number != number {
		return mounted, found, status.Errorf(codes.AlreadyExists, "another device is mounted at %s", path)
	}
	return mounted, found, nil
}

// NodeUnstageVolume unmounts the volume and detaches its loop device. It fails while the device is in use, so that the volume stays
// attached to this node.
func (n node) NodeUnstageVolume(ctx context.Context, request *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	volume, path, unlock, err := n.lockVolumeAt(ctx, request.GetVolumeId(), "staging target path", request.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := device.Unmount(ctx, path); err != nil {
		return nil, toStatusError(err)
	}
	// A node that returns after an outage must not detach the loop device of another node.
	if volume.Node != n.options.Node && volume.Published != n.options.Node {
		return &csi.NodeUnstageVolumeResponse{}, nil
	}
	if err := device.Detach(ctx, n.store.VolumeImage(volume.ID)); err != nil {
		return nil, toStatusError(err)
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// loopDevice returns the volume's loop device. It returns FAILED_PRECONDITION if the volume is not staged.
func (n node) loopDevice(ctx context.Context, volumeID string) (string, error) {
	loops, err := device.LoopDevices(ctx, n.store.VolumeImage(volumeID))
	if err != nil {
		return "", toStatusError(err)
	}
	if len(loops) == 0 {
		return "", status.Errorf(codes.FailedPrecondition, "volume %s is not staged on node %s", volumeID, n.options.Node)
	}
	return loops[0], nil
}
