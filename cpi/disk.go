package cpi

import (
	"errors"

	"github.com/cloudfoundry/bosh-cpi-go/apiv1"
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// createDisk makes a claim and does not wait for its volume: a class that binds at the first consumer
// binds when the disk is attached. Its size is in MiB.
func (c *call) createDisk(sizeMiB int64, properties apiv1.CloudPropsImpl, _ *apiv1.VMCID) (apiv1.DiskCID, error) {
	if sizeMiB <= 0 {
		return apiv1.DiskCID{}, invalid("disk size %d must be greater than 0 (MiB)", sizeMiB)
	}
	wanted, err := parseDiskProperties(properties.RawMessage)
	if err != nil {
		return apiv1.DiskCID{}, err
	}
	cluster, err := c.cluster()
	if err != nil {
		return apiv1.DiskCID{}, err
	}
	disk := wanted.disk(manifest.DiskName(uuid.NewString()), c.director, sizeMiB)
	disk.Namespace = cluster.Namespace
	// The name is new, so one that exists is this call's own, made by a request whose answer was lost.
	if _, err := cluster.Claims.Create(c.ctx, disk.Claim()); err != nil && !errors.Is(err, kube.ErrExists) {
		return apiv1.DiskCID{}, err
	}
	return apiv1.NewDiskCID(disk.Name), nil
}

// claim answers a disk that is there and stays.
func (c *call) claim(cluster *kube.Client, cid string) (*corev1.PersistentVolumeClaim, error) {
	claim, err := cluster.Claims.Get(c.ctx, cid)
	if errors.Is(err, kube.ErrNotFound) {
		return nil, diskNotFound(cid)
	}
	if err == nil && (claim.DeletionTimestamp != nil || !isDisk(claim)) {
		return nil, diskNotFound(cid)
	}
	return claim, err
}

// isDisk tells what create_disk has made from the cluster's other claims.
func isDisk(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Labels[manifest.LabelRole] == manifest.RoleDisk
}

func (c *call) hasDisk(cid apiv1.DiskCID) (bool, error) {
	cluster, err := c.cluster()
	if err != nil {
		return false, err
	}
	_, err = c.claim(cluster, cid.AsString())
	if isDiskNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// deleteDisk removes a disk that is attached to no VM, and waits until its claim is gone.
func (c *call) deleteDisk(cid apiv1.DiskCID) (any, error) {
	cluster, err := c.cluster()
	if err != nil {
		return nil, err
	}
	claim, err := cluster.Claims.Get(c.ctx, cid.AsString())
	if errors.Is(err, kube.ErrNotFound) || err == nil && !isDisk(claim) {
		return nil, diskNotFound(cid.AsString())
	}
	if err != nil {
		return nil, err
	}
	if err := c.unattached(cluster, claim); err != nil {
		return nil, err
	}
	if err := c.settleCopy(cluster, claim); err != nil {
		return nil, err
	}
	return nil, cluster.Claims.Remove(c.ctx, claim)
}

func (c *call) setDiskMetadata(cid apiv1.DiskCID, metadata map[string]any) (any, error) {
	cluster, err := c.cluster()
	if err != nil {
		return nil, err
	}
	_, err = putMetadata(c.ctx, cluster.Claims, cid.AsString(), metadata)
	if errors.Is(err, kube.ErrNotFound) {
		return nil, diskNotFound(cid.AsString())
	}
	return nil, err
}

// getDisks lists the attachments, which are the one record of what is attached.
func (c *call) getDisks(cid apiv1.VMCID) ([]string, error) {
	cluster, err := c.cluster()
	if err != nil {
		return nil, err
	}
	_, attachments, err := c.withAttachments(cluster, cid.AsString())
	if err != nil {
		return nil, err
	}
	disks := []string{}
	for _, attachment := range attachments {
		disks = append(disks, attachment.Labels[manifest.LabelDisk])
	}
	return disks, nil
}
