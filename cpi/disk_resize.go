package cpi

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/cloudfoundry/bosh-cpi-go/apiv1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// resizeDisk grows a detached disk to this many MiB: it expands the claim, and the next attachment
// grows the image file and the filesystem. What cannot grow in place is NotSupported, before anything
// is changed; the director then copies the disk.
func (c *call) resizeDisk(cid apiv1.DiskCID, sizeMiB int64) (any, error) {
	if sizeMiB <= 0 {
		return nil, invalid("disk size %d must be greater than 0 (MiB)", sizeMiB)
	}
	cluster, err := c.cluster()
	if err != nil {
		return nil, err
	}
	claim, err := c.claim(cluster, cid.AsString())
	if err != nil {
		return nil, err
	}
	if err := c.unattached(cluster, claim); err != nil {
		return nil, err
	}
	return nil, c.growClaim(cluster, claim, sizeMiB)
}

// unattached refuses a disk that is attached to a VM, or that a copy reads.
func (c *call) unattached(cluster *kube.Client, disk *corev1.PersistentVolumeClaim) error {
	attachment, err := cluster.Pods.Get(c.ctx, manifest.AttachmentName(disk.Name))
	switch {
	case errors.Is(err, kube.ErrNotFound):
		return c.notVolumeOf(cluster, disk, "")
	case err != nil:
		return err
	case attachment.DeletionTimestamp != nil:
		return nil
	case isCopy(attachment) && !copyRuns(attachment):
		return nil
	case isCopy(attachment):
		return copying(attachment)
	}
	return attached(attachment)
}

func attached(attachment *corev1.Pod) error {
	return attachedTo(attachment.Labels[manifest.LabelDisk], attachment.Labels[manifest.LabelVM])
}

func attachedTo(disk, vm string) error {
	return typed(typeCloudError, "disk %s is attached to VM %s: detach it first", disk, vm)
}

// sizeOf answers the size of a disk in MiB as BOSH asked for it.
func sizeOf(claim *corev1.PersistentVolumeClaim) (int64, error) {
	size, err := strconv.ParseInt(claim.Annotations[manifest.AnnotationSize], 10, 64)
	if err != nil {
		return 0, typed(typeCloudError, "claim %s is no disk of this CPI: its annotation %s is %q",
			claim.Name, manifest.AnnotationSize, claim.Annotations[manifest.AnnotationSize])
	}
	return size, nil
}

// growClaim refuses what cannot be done in place, and expands the claim.
func (c *call) growClaim(cluster *kube.Client, claim *corev1.PersistentVolumeClaim, sizeMiB int64) error {
	has, err := sizeOf(claim)
	if err != nil {
		return err
	}
	switch {
	case sizeMiB < has:
		return typed(typeNotSupported, "disk %s has %d MiB and cannot shrink to %d MiB in place", claim.Name, has, sizeMiB)
	case !kube.Bound(claim):
		return typed(typeNotSupported, "disk %s has no volume yet and cannot be resized before it was attached once", claim.Name)
	}
	if sizeMiB > has {
		if err := c.expandable(cluster, claim); err != nil {
			return err
		}
	}
	return c.expandClaim(cluster, claim, has, sizeMiB)
}

// expandClaim is the converge step of growth: it asks for the room, waits for it, and only then notes the
// size, so that a disk whose volume could not be expanded stays what it was. Repeated after a crash, each
// step finds what was done; of a disk that has the size already nothing is changed.
func (c *call) expandClaim(cluster *kube.Client, claim *corev1.PersistentVolumeClaim, has, sizeMiB int64) error {
	wanted := *resource.NewQuantity(manifest.ClaimMiB(sizeMiB, manifest.VolumeMode(claim), manifest.IsDirectory(claim))<<20, resource.BinarySI)
	if sizeMiB > has {
		var err error
		if claim, err = c.requestRoom(cluster, claim, wanted); err != nil {
			return err
		}
	}
	if err := c.awaitGrowth(cluster, claim, wanted); err != nil || sizeMiB == has {
		return err
	}
	return c.annotateClaim(cluster, claim.Name, manifest.AnnotationSize, new(strconv.FormatInt(sizeMiB, 10)))
}

// requestRoom makes the claim ask for this much. A larger request, which an expansion that failed or whose
// call was killed has left, is taken back only where Kubernetes allows it: to more than the volume has.
func (c *call) requestRoom(cluster *kube.Client, claim *corev1.PersistentVolumeClaim, wanted resource.Quantity) (*corev1.PersistentVolumeClaim, error) {
	asked, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	if wanted.Cmp(asked) == 0 || wanted.Cmp(asked) < 0 && wanted.Cmp(has) <= 0 {
		return claim, nil
	}
	patch, err := json.Marshal(map[string]any{
		"spec": map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": wanted}}},
	})
	if err != nil {
		return nil, fmt.Errorf("resize of claim %s: %w", claim.Name, err)
	}
	return cluster.Claims.Patch(c.ctx, claim.Name, types.MergePatchType, patch)
}

// expandable refuses a claim whose class cannot expand it.
func (c *call) expandable(cluster *kube.Client, claim *corev1.PersistentVolumeClaim) error {
	name := ""
	if claim.Spec.StorageClassName != nil {
		name = *claim.Spec.StorageClassName
	}
	if name == "" {
		return typed(typeNotSupported, "disk %s has no StorageClass that could expand it", claim.Name)
	}
	classes, err := cluster.StorageClasses()
	if err != nil {
		return err
	}
	class, err := classes.Get(c.ctx, name)
	if errors.Is(err, kube.ErrNotFound) {
		return typed(typeNotSupported, "disk %s cannot be expanded: its StorageClass %s is gone", claim.Name, name)
	}
	if err != nil {
		return err
	}
	if class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
		return typed(typeNotSupported, "StorageClass %s of disk %s does not allow volume expansion (allowVolumeExpansion)", name, claim.Name)
	}
	return nil
}

// awaitGrowth waits until the volume has this size, or until all that is left is the node's part, which
// the kubelet does when the disk is attached next. The status may still be about an earlier request: most
// resizers tell of which size it is.
func (c *call) awaitGrowth(cluster *kube.Client, claim *corev1.PersistentVolumeClaim, wanted resource.Quantity) error {
	last := "nothing was reported"
	err := cluster.Claims.Await(c.ctx, kube.Selection{Name: claim.Name}, kube.At(claim), func(present []*corev1.PersistentVolumeClaim) (bool, error) {
		if len(present) == 0 {
			return false, diskNotFound(claim.Name)
		}
		status := present[0].Status
		if has := status.Capacity[corev1.ResourceStorage]; has.Cmp(wanted) >= 0 {
			return true, nil
		}
		order := 0 // of the size that the status is about to the one wanted
		if about, told := status.AllocatedResources[corev1.ResourceStorage]; told {
			order = about.Cmp(wanted)
		}
		for _, condition := range status.Conditions {
			if condition.Type == corev1.PersistentVolumeClaimFileSystemResizePending && condition.Status == corev1.ConditionTrue && order >= 0 {
				return true, nil
			}
			last = string(condition.Type) + ": " + condition.Message
		}
		switch phase := status.AllocatedResourceStatuses[corev1.ResourceStorage]; {
		case phase == corev1.PersistentVolumeClaimNodeResizePending && order >= 0:
			return true, nil
		case phase == corev1.PersistentVolumeClaimControllerResizeInfeasible && order == 0:
			return false, typed(typeCloudError, "the volume of disk %s cannot be expanded to %s: %s", claim.Name, wanted.String(), last)
		}
		return false, nil
	})
	if errors.Is(err, kube.ErrTimeout) {
		return &explained{err, "the volume of disk " + claim.Name + " was not expanded to " + wanted.String() + ": " + last}
	}
	return err
}
