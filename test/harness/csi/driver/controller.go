package driver

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"bosh-kubernetes-cpi/test/harness/csi/device"
	"bosh-kubernetes-cpi/test/harness/csi/store"
)

type controller struct {
	csi.UnimplementedControllerServer
	*Driver
}

func (c controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	wrap := func(kind csi.ControllerServiceCapability_RPC_Type) *csi.ControllerServiceCapability {
		return &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: kind}},
		}
	}
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: serviceCapabilities(wrap,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
	)}, nil
}

func (c controller) CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := requireFields("name", request.GetName()); err != nil {
		return nil, err
	}
	if err := checkCapabilities(request.GetVolumeCapabilities()); err != nil {
		return nil, err
	}
	if err := checkMutableParameters(request.GetMutableParameters()); err != nil {
		return nil, err
	}
	unlock, err := c.locks.lock(ctx, "volume named "+request.GetName())
	if err != nil {
		return nil, err
	}
	defer unlock()
	volumes, err := c.store.Volumes()
	if err != nil {
		return nil, toStatusError(err)
	}
	index := slices.IndexFunc(volumes, func(v store.Volume) bool { return v.Name == request.GetName() })
	if index >= 0 {
		if err := checkMatchesRequest(volumes[index], request); err != nil {
			return nil, err
		}
		return &csi.CreateVolumeResponse{Volume: toCSIVolume(volumes[index])}, nil
	}
	volume, err := c.create(ctx, request)
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: toCSIVolume(volume)}, nil
}

// checkMatchesRequest returns ALREADY_EXISTS if the existing volume with the requested name differs from the request.
func checkMatchesRequest(volume store.Volume, request *csi.CreateVolumeRequest) error {
	requested := request.GetCapacityRange()
	source := request.GetVolumeContentSource().GetSnapshot().GetSnapshotId()
	switch {
	case volume.Capacity < requested.GetRequiredBytes() || requested.GetLimitBytes() > 0 && volume.Capacity > requested.GetLimitBytes():
		return status.Errorf(codes.AlreadyExists, "volume %s already exists with %d bytes", volume.Name, volume.Capacity)
	case source != volume.SourceSnapshot:
		return status.Errorf(codes.AlreadyExists, "volume %s already exists with content from another source", volume.Name)
	case volume.Node != "" && !accessibleFrom(request.GetAccessibilityRequirements(), volume.Node):
		return status.Errorf(codes.AlreadyExists, "volume %s already exists on node %s", volume.Name, volume.Node)
	}
	return nil
}

func (c controller) create(ctx context.Context, request *csi.CreateVolumeRequest) (store.Volume, error) {
	volume := store.Volume{ID: "volume-" + uuid.NewString(), Name: request.GetName(), IOPS: request.GetMutableParameters()[IOPSParameter]}
	source, unlock, err := c.lockSource(ctx, request.GetVolumeContentSource())
	if err != nil {
		return volume, err
	}
	defer unlock()
	volume.SourceSnapshot = source.ID
	if volume.Capacity, err = chooseSize(request.GetCapacityRange(), source.Size); err != nil {
		return volume, err
	}
	anyNode, err := isMovable(request.GetParameters())
	if err != nil {
		return volume, err
	}
	if !anyNode {
		if volume.Node, err = c.chooseNode(request.GetAccessibilityRequirements()); err != nil {
			return volume, err
		}
	}
	imagePath := c.store.VolumeImage(volume.ID)
	if source.ID == "" {
		err = store.CreateImage(imagePath, volume.Capacity)
	} else if err = store.CopyImage(ctx, c.store.SnapshotImage(source.ID), imagePath); err == nil {
		err = store.GrowImage(imagePath, volume.Capacity)
	}
	if err == nil {
		err = c.store.PutVolume(volume)
	}
	if err != nil {
		return volume, toStatusError(errors.Join(err, os.RemoveAll(imagePath)))
	}
	return volume, nil
}

// lockSource returns the snapshot from which the content of a new volume is copied, locked against deletion, or none.
func (c controller) lockSource(ctx context.Context, source *csi.VolumeContentSource) (snapshot store.Snapshot, unlock func(), err error) {
	if source == nil {
		return snapshot, func() {}, nil
	}
	id := source.GetSnapshot().GetSnapshotId()
	if err := requireFields("snapshot id of the source", id); err != nil {
		return snapshot, nil, err
	}
	if unlock, err = c.locks.lock(ctx, id); err != nil {
		return snapshot, nil, err
	}
	if snapshot, err = c.store.Snapshot(id); err != nil {
		unlock()
	}
	return snapshot, unlock, toStatusError(err)
}

// chooseNode returns the first usable node of the requirement, preferred nodes first, or the first of all nodes without a requirement. See
// CreateVolumeRequest.accessibility_requirements in the spec.
func (c controller) chooseNode(requirement *csi.TopologyRequirement) (string, error) {
	known, err := c.store.Nodes()
	if err != nil {
		return "", toStatusError(err)
	}
	candidates := known
	if requirement != nil {
		candidates = nil
		for _, option := range slices.Concat(requirement.GetPreferred(), requirement.GetRequisite()) {
			candidates = append(candidates, option.GetSegments()[TopologyKey])
		}
	}
	for _, name := range candidates {
		if slices.Contains(known, name) && accessibleFrom(requirement, name) {
			return name, nil
		}
	}
	return "", status.Errorf(codes.ResourceExhausted, "no usable node: candidates %q, known nodes %q", candidates, known)
}

// accessibleFrom reports whether a volume on the node is accessible from one of the requisite topologies.
func accessibleFrom(requirement *csi.TopologyRequirement, node string) bool {
	return len(requirement.GetRequisite()) == 0 || slices.ContainsFunc(requirement.GetRequisite(), func(t *csi.Topology) bool {
		return t.GetSegments()[TopologyKey] == node
	})
}

// isMovable reports whether any node can use the volume, one at a time, like network storage. Without the parameter, the volume is
// bound to a node.
func isMovable(parameters map[string]string) (bool, error) {
	switch value := parameters[AccessibilityParameter]; value {
	case "":
		return false, nil
	case "any-node":
		return true, nil
	default:
		return false, status.Errorf(codes.InvalidArgument, "StorageClass parameter %s is %q; the only valid value is any-node", AccessibilityParameter, value)
	}
}

func topology(node string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{TopologyKey: node}}
}

func toCSIVolume(volume store.Volume) *csi.Volume {
	response := &csi.Volume{VolumeId: volume.ID, CapacityBytes: volume.Capacity}
	if volume.Node != "" {
		response.AccessibleTopology = []*csi.Topology{topology(volume.Node)}
	}
	if volume.SourceSnapshot != "" {
		response.ContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: volume.SourceSnapshot}}}
	}
	return response
}

// DeleteVolume succeeds if the volume does not exist. It fails if the volume is attached or mounted.
func (c controller) DeleteVolume(ctx context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := requireFields("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	volume, unlock, err := c.lockVolume(ctx, request.GetVolumeId())
	if status.Code(err) == codes.NotFound {
		return &csi.DeleteVolumeResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	if volume.Published != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to node %s", volume.ID, volume.Published)
	}
	if err := device.Detach(ctx, c.store.VolumeImage(volume.ID)); err != nil {
		return nil, toStatusError(err)
	}
	return &csi.DeleteVolumeResponse{}, toStatusError(c.store.DeleteVolume(volume.ID))
}

func (c controller) ValidateVolumeCapabilities(_ context.Context, request *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := requireFields("volume id", request.GetVolumeId()); err != nil {
		return nil, err
	}
	if len(request.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "the volume capabilities are missing")
	}
	if _, err := c.store.Volume(request.GetVolumeId()); err != nil {
		return nil, toStatusError(err)
	}
	for _, capability := range request.GetVolumeCapabilities() {
		if err := checkSupported(capability); err != nil {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil //nolint:nilerr // the error is the response
		}
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: request.GetVolumeContext(), VolumeCapabilities: request.GetVolumeCapabilities(), Parameters: request.GetParameters(),
	}}, nil
}
