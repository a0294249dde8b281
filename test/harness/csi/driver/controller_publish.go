package driver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"bosh-kubernetes-cpi/test/harness/csi/store"
)

// ControllerPublishVolume assigns the volume to a node, and attaches no device. Only the assigned node may stage the volume.
func (c controller) ControllerPublishVolume(ctx context.Context, request *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if err := requireFields("volume id", request.GetVolumeId(), "node id", request.GetNodeId()); err != nil {
		return nil, err
	}
	volume, unlock, err := c.lockVolumeFor(ctx, request)
	if err != nil {
		return nil, err
	}
	defer unlock()
	known, err := c.store.HasNode(request.GetNodeId())
	if err != nil {
		return nil, toStatusError(err)
	}
	switch {
	case !known:
		return nil, status.Errorf(codes.NotFound, "unknown node %s", request.GetNodeId())
	case volume.Published != "" && volume.Published != request.GetNodeId():
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to node %s, and cannot be attached to multiple nodes", volume.ID, volume.Published)
	case volume.Node != "" && volume.Node != request.GetNodeId():
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is on node %s, not %s", volume.ID, volume.Node, request.GetNodeId())
	case volume.Published == "":
		volume.Published = request.GetNodeId()
		if err := c.store.PutVolume(volume); err != nil {
			return nil, toStatusError(fmt.Errorf("attach volume %s: %w", volume.ID, err))
		}
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"node": volume.Published}}, nil
}

// ControllerUnpublishVolume detaches the volume from the node, or from any node if the request has no node ID. It succeeds if the
// volume does not exist or is attached to another node.
func (c controller) ControllerUnpublishVolume(ctx context.Context, request *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if err := requireFields("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	response := &csi.ControllerUnpublishVolumeResponse{}
	volume, unlock, err := c.lockVolume(ctx, request.GetVolumeId())
	if status.Code(err) == codes.NotFound {
		return response, nil
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	if volume.Published == "" || request.GetNodeId() != "" && request.GetNodeId() != volume.Published {
		return response, nil
	}
	volume.Published = ""
	return response, toStatusError(c.store.PutVolume(volume))
}

// ControllerModifyVolume records the parameters of a VolumeAttributesClass. They do not affect the volume.
func (c controller) ControllerModifyVolume(ctx context.Context, request *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if err := requireFields("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	volume, unlock, err := c.lockVolume(ctx, request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := checkMutableParameters(request.GetMutableParameters()); err != nil {
		return nil, err
	}
	if iops, ok := request.GetMutableParameters()[IOPSParameter]; ok {
		volume.IOPS = iops
	}
	if err := c.store.PutVolume(volume); err != nil {
		return nil, toStatusError(fmt.Errorf("modify volume %s: %w", volume.ID, err))
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
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
	volume, unlock, err := c.lockVolume(ctx, request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer unlock()
	capacity, err := chooseSize(request.GetCapacityRange(), volume.Capacity)
	if err != nil {
		return nil, err
	}
	if err := store.GrowImage(c.store.VolumeImage(volume.ID), capacity); err != nil {
		return nil, toStatusError(fmt.Errorf("grow volume %s: %w", volume.ID, err))
	}
	volume.Capacity = capacity
	if err := c.store.PutVolume(volume); err != nil {
		return nil, toStatusError(fmt.Errorf("grow volume %s: %w", volume.ID, err))
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: capacity, NodeExpansionRequired: true}, nil
}
