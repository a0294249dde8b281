package driver

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"bosh-kubernetes-cpi/test/harness/csi/store"
)

// paginate returns a page of the records, and the token of the next page: the ID of the page's last record. For an invalid token, it
// returns ABORTED, as the spec requires.
func paginate[T any](records []T, id func(T) string, token string, limit int32) (page []T, next string, err error) {
	if limit < 0 {
		return nil, "", status.Errorf(codes.InvalidArgument, "max_entries %d is negative", limit)
	}
	if token != "" {
		index := slices.IndexFunc(records, func(record T) bool { return id(record) == token })
		if index < 0 {
			return nil, "", status.Errorf(codes.Aborted, "unknown starting token %q; list from the beginning", token)
		}
		records = records[index+1:]
	}
	if limit == 0 || int(limit) >= len(records) {
		return records, "", nil
	}
	return records[:limit], id(records[limit-1]), nil
}

func (c controller) ListVolumes(_ context.Context, request *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	volumes, err := c.store.Volumes()
	if err != nil {
		return nil, toStatusError(err)
	}
	page, next, err := paginate(volumes, func(v store.Volume) string { return v.ID }, request.GetStartingToken(), request.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	response := &csi.ListVolumesResponse{NextToken: next}
	for _, volume := range page {
		volumeStatus := &csi.ListVolumesResponse_VolumeStatus{}
		if volume.Published != "" {
			volumeStatus.PublishedNodeIds = []string{volume.Published}
		}
		response.Entries = append(response.Entries, &csi.ListVolumesResponse_Entry{Volume: toCSIVolume(volume), Status: volumeStatus})
	}
	return response, nil
}

// ListSnapshots returns an empty list for a snapshot or source that does not exist, as the spec requires.
func (c controller) ListSnapshots(_ context.Context, request *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	snapshots, err := c.store.Snapshots()
	if err != nil {
		return nil, toStatusError(err)
	}
	snapshots = slices.DeleteFunc(snapshots, func(s store.Snapshot) bool {
		return request.GetSnapshotId() != "" && request.GetSnapshotId() != s.ID ||
			request.GetSourceVolumeId() != "" && request.GetSourceVolumeId() != s.Source
	})
	page, next, err := paginate(snapshots, func(s store.Snapshot) string { return s.ID }, request.GetStartingToken(), request.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	response := &csi.ListSnapshotsResponse{NextToken: next}
	for _, snapshot := range page {
		response.Entries = append(response.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: toCSISnapshot(snapshot)})
	}
	return response, nil
}
