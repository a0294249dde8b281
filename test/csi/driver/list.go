package driver

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"bosh-kubernetes-cpi/test/csi/store"
)

// paginate returns the records after the one that the token names, and the next page's token: the id of the
// page's last record. The spec wants ABORTED for a token that is not valid.
func paginate[T any](all []T, id func(T) string, token string, limit int32) ([]T, string, error) {
	if limit < 0 {
		return nil, "", status.Errorf(codes.InvalidArgument, "%d entries at most cannot be answered", limit)
	}
	if token != "" {
		at := slices.IndexFunc(all, func(each T) bool { return id(each) == token })
		if at < 0 {
			return nil, "", status.Errorf(codes.Aborted, "the starting token %q is not known; list from the beginning", token)
		}
		all = all[at+1:]
	}
	if limit == 0 || int(limit) >= len(all) {
		return all, "", nil
	}
	return all[:limit], id(all[limit-1]), nil
}

func (c controller) ListVolumes(_ context.Context, request *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	all, err := c.store.Volumes()
	if err != nil {
		return nil, toStatusError(err)
	}
	some, next, err := paginate(all, func(v store.Volume) string { return v.ID }, request.GetStartingToken(), request.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	answer := &csi.ListVolumesResponse{NextToken: next}
	for _, volume := range some {
		at := &csi.ListVolumesResponse_VolumeStatus{}
		if volume.Published != "" {
			at.PublishedNodeIds = []string{volume.Published}
		}
		answer.Entries = append(answer.Entries, &csi.ListVolumesResponse_Entry{Volume: csiVolume(volume), Status: at})
	}
	return answer, nil
}

// ListSnapshots returns nothing for a snapshot or source that is not there, as the spec wants.
func (c controller) ListSnapshots(_ context.Context, request *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	all, err := c.store.Snapshots()
	if err != nil {
		return nil, toStatusError(err)
	}
	all = slices.DeleteFunc(all, func(each store.Snapshot) bool {
		return request.GetSnapshotId() != "" && request.GetSnapshotId() != each.ID ||
			request.GetSourceVolumeId() != "" && request.GetSourceVolumeId() != each.Source
	})
	some, next, err := paginate(all, func(s store.Snapshot) string { return s.ID }, request.GetStartingToken(), request.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	answer := &csi.ListSnapshotsResponse{NextToken: next}
	for _, snapshot := range some {
		answer.Entries = append(answer.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: csiSnapshot(snapshot)})
	}
	return answer, nil
}
