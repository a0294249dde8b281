package driver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"bosh-kubernetes-cpi/test/csi/store"
)

// ControllerPublishVolume assigns the volume to a node. It attaches no device: the record allows only this node to stage the volume.
func (c controller) ControllerPublishVolume(ctx context.Context, request *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if err := requireFields("volume id", request.GetVolumeId(), "node id", request.GetNodeId()); err != nil {
		return nil, err
	}
	volume, release, err := c.lockVolumeFor(ctx, request)
	if err != nil {
		return nil, err
	}
	defer release()
	known, err := c.store.HasNode(request.GetNodeId())
	if err != nil {
		return nil, toStatusError(err)
	}
	readOnly := request.GetReadonly() || readOnly(request.GetVolumeCapability())
	switch {
	case !known:
		return nil, status.Errorf(codes.NotFound, "unknown node %s", request.GetNodeId())
	case volume.Published != "" && volume.Published != request.GetNodeId():
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to node %s, and cannot be attached to several nodes", volume.ID, volume.Published)
	case volume.Node != "" && volume.Node != request.GetNodeId():
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is on node %s, not on %s", volume.ID, volume.Node, request.GetNodeId())
	case volume.Published != "" && volume.ReadOnly != readOnly:
		return nil, status.Errorf(codes.AlreadyExists, "volume %s is attached to node %s with read-only %t", volume.ID, volume.Published, volume.ReadOnly)
	case volume.Published == "":
		volume.Published, volume.ReadOnly = request.GetNodeId(), readOnly
		if err := c.store.PutVolume(volume); err != nil {
			return nil, toStatusError(fmt.Errorf("attach volume %s: %w", volume.ID, err))
		}
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"node": volume.Published}}, nil
}

// ControllerUnpublishVolume detaches the volume from the node, or from any node if the request has no node ID. A volume that does not
// exist or is attached to another node is not an error.
func (c controller) ControllerUnpublishVolume(ctx context.Context, request *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if err := requireFields("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	done := &csi.ControllerUnpublishVolumeResponse{}
	volume, release, err := c.lockVolume(ctx, request.GetVolumeId())
	if status.Code(err) == codes.NotFound {
		return done, nil
	}
	if err != nil {
		return nil, err
	}
	defer release()
	if volume.Published == "" || request.GetNodeId() != "" && request.GetNodeId() != volume.Published {
		return done, nil
	}
	volume.Published, volume.ReadOnly = "", false
	return done, toStatusError(c.store.PutVolume(volume))
}

// ControllerExpandVolume grows the image; NodeExpandVolume grows the device and the filesystem.
func (c controller) ControllerExpandVolume(ctx context.Context, request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := requireFields("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	if request.GetCapacityRange() == nil {
		return nil, status.Error(codes.InvalidArgument, "the capacity range is missing")
	}
	if request.GetVolumeCapability() != nil {
		if err := checkCapability(request.GetVolumeCapability()); err != nil {
			return nil, err
		}
	}
	volume, release, err := c.lockVolume(ctx, request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	larger, err := chooseSize(request.GetCapacityRange(), volume.Capacity)
	if err != nil {
		return nil, err
	}
	if err := store.GrowImage(c.store.VolumeImage(volume.ID), larger); err != nil {
		return nil, toStatusError(fmt.Errorf("grow volume %s: %w", volume.ID, err))
	}
	volume.Capacity = larger
	if err := c.store.PutVolume(volume); err != nil {
		return nil, toStatusError(fmt.Errorf("grow volume %s: %w", volume.ID, err))
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: larger, NodeExpansionRequired: true}, nil
}
