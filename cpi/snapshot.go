package cpi

import (
	"errors"

	"github.com/cloudfoundry/bosh-cpi-go/apiv1"
	"github.com/google/uuid"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// snapshotDisk takes a VolumeSnapshot of the disk's volume and waits until it can be used. What the
// machine has written to the disk is flushed first; the snapshot is then as after a power cut at that
// moment, which the filesystem's journal mends when a disk made from it is mounted.
func (c *call) snapshotDisk(cid apiv1.DiskCID, metadata map[string]any) (string, error) {
	cluster, err := c.cluster()
	if err != nil {
		return "", err
	}
	claim, err := c.claim(cluster, cid.AsString())
	if err != nil {
		return "", err
	}
	if !kube.Bound(claim) {
		return "", typed(typeCloudError, "disk %s has no volume yet: it gets one when it is first attached, and can be snapshot then", claim.Name)
	}
	snapshots, err := cluster.Snapshots()
	if err != nil {
		return "", err
	}
	if err := c.flush(cluster, claim.Name); err != nil {
		return "", err
	}
	wanted := &kube.VolumeSnapshot{ObjectMeta: manifest.SnapshotMeta(manifest.SnapshotName(uuid.NewString()), cluster.Namespace, c.director, claim.Name)}
	wanted.Spec.Source.PersistentVolumeClaimName = &claim.Name
	if err := describeSnapshot(wanted, metadata); err != nil {
		return "", err
	}
	snapshot, err := snapshots.Create(c.ctx, wanted)
	switch {
	case errors.Is(err, kube.ErrExists): // this call's own: the name is new
		snapshot = wanted
	case errors.Is(err, kube.ErrNotServed):
		return "", typed(typeNotSupported, "the cluster has no VolumeSnapshots (snapshot.storage.k8s.io/v1): install a CSI driver with snapshots and the snapshot controller, or disable the director's snapshots: %w", err)
	case err != nil:
		return "", err
	}
	if err := c.awaitSnapshot(snapshots, snapshot); err != nil {
		detached, cancel := c.detached()
		defer cancel()
		return "", errors.Join(err, snapshots.Delete(detached.ctx, snapshot))
	}
	return snapshot.Name, nil
}

// describeSnapshot puts the director's metadata on the snapshot, as on VMs and disks.
func describeSnapshot(snapshot *kube.VolumeSnapshot, metadata map[string]any) error {
	described, err := asMetadata(metadata)
	if err != nil {
		return err
	}
	for key, value := range described.Labels {
		if value != nil {
			snapshot.Labels[key] = *value
		}
	}
	snapshot.Annotations = described.Annotations
	return nil
}

func (c *call) awaitSnapshot(snapshots *kube.Resource[*kube.VolumeSnapshot, *kube.ListOf[kube.VolumeSnapshot]], wanted *kube.VolumeSnapshot) error {
	last := "the snapshot controller has not reported anything: is it running?"
	err := snapshots.Await(c.ctx, kube.Selection{Name: wanted.Name}, nil, func(present []*kube.VolumeSnapshot) (bool, error) {
		if len(present) == 0 {
			return false, typed(typeCloudError, "snapshot %s was deleted while it was being taken", wanted.Name)
		}
		*wanted = *present[0]
		status := wanted.Status
		if status == nil {
			return false, nil
		}
		if status.Error != nil && status.Error.Message != nil {
			last = *status.Error.Message
		}
		return status.ReadyToUse != nil && *status.ReadyToUse, nil
	})
	if errors.Is(err, kube.ErrTimeout) {
		return &explained{err, "snapshot " + wanted.Name + " did not become ready: " + last}
	}
	return err
}

// flush makes the node write out what a machine has written to its disk. A disk that is not attached
// has nothing to flush, nor has one that a copy reads.
func (c *call) flush(cluster *kube.Client, disk string) error {
	attachment, err := cluster.Pods.Get(c.ctx, manifest.AttachmentName(disk))
	if errors.Is(err, kube.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !kube.Ready(attachment) || attachment.DeletionTimestamp != nil || isCopy(attachment) {
		return nil
	}
	return c.runErrand(cluster, manifest.Flush(attachment, c.director), "disk "+disk+" could not be flushed")
}

// deleteSnapshot removes a snapshot; one that is not there is what was asked for.
func (c *call) deleteSnapshot(cid apiv1.SnapshotCID) (any, error) {
	cluster, err := c.cluster()
	if err != nil {
		return nil, err
	}
	snapshots, err := cluster.Snapshots()
	if err != nil {
		return nil, err
	}
	snapshot, err := snapshots.Get(c.ctx, cid.AsString())
	if errors.Is(err, kube.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return nil, snapshots.Remove(c.ctx, snapshot)
}
