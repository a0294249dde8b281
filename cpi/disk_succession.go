package cpi

import (
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// settleCopy makes a disk the one that is used: from here on the director knows of it alone. The copy
// that a call has begun of it is given up, or, when it is a copy itself, the disk that it was made of is
// deleted. Nearly all disks are neither.
func (c *call) settleCopy(cluster *kube.Client, claim *corev1.PersistentVolumeClaim) error {
	if err := c.takeOver(cluster, claim); err != nil {
		return err
	}
	return c.abandonCopy(cluster, claim)
}

// takeOver deletes the disk that a proven copy was made of.
func (c *call) takeOver(cluster *kube.Client, claim *corev1.PersistentVolumeClaim) error {
	former := claim.Annotations[manifest.AnnotationCopyOf]
	switch claim.Labels[manifest.LabelCopy] {
	case "":
		return nil
	case manifest.CopyUnproven:
		return typed(typeCloudError, "disk %s is no disk yet, but a copy of disk %s that is not whole: repeat update_disk", claim.Name, former)
	}
	old, err := c.claim(cluster, former)
	if err == nil && old.Annotations[manifest.AnnotationCopiedTo] == claim.Name {
		if err := c.unattached(cluster, old); err != nil {
			return err
		}
		err = cluster.Claims.Delete(c.ctx, old)
	}
	if err != nil && !isDiskNotFound(err) {
		return err
	}
	if err := c.endCopy(cluster, former); err != nil { // its Pod would keep the claim
		return err
	}
	return c.labelCopy(cluster, claim.Name, nil)
}

// abandonCopy removes what is there of a copy of the disk, whose data will change. A copy that runs is
// left to end, and one that has taken the disk's place is not taken back.
func (c *call) abandonCopy(cluster *kube.Client, claim *corev1.PersistentVolumeClaim) error {
	successor := claim.Annotations[manifest.AnnotationCopiedTo]
	if successor == "" {
		return nil
	}
	if err := c.unattached(cluster, claim); err != nil {
		return err
	}
	return c.undoCopy(cluster, claim, successor)
}

// undoCopy ends the copy, removes the successor, and unmarks the disk.
func (c *call) undoCopy(cluster *kube.Client, claim *corev1.PersistentVolumeClaim, successor string) error {
	if err := c.endCopy(cluster, claim.Name); err != nil {
		return err
	}
	copied, err := c.claim(cluster, successor)
	switch {
	case isDiskNotFound(err):
	case err != nil:
		return err
	case copied.Annotations[manifest.AnnotationCopyOf] != claim.Name: // another's
	case copied.Labels[manifest.LabelCopy] == "":
		return typed(typeCloudError, "disk %s has taken the place of disk %s", successor, claim.Name)
	default:
		if err := cluster.Claims.DeleteUnchanged(c.ctx, copied); err != nil {
			return err
		}
	}
	return c.annotateClaim(cluster, claim.Name, manifest.AnnotationCopiedTo, nil)
}

// endCopy removes the Pod of the disk's copy, and waits until its node has let go of both disks.
func (c *call) endCopy(cluster *kube.Client, disk string) error {
	pod, err := cluster.Pods.Get(c.ctx, manifest.AttachmentName(disk))
	if errors.Is(err, kube.ErrNotFound) || err == nil && !isCopy(pod) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.endPod(cluster, pod)
}

// annotateClaim sets the annotation, or removes it.
func (c *call) annotateClaim(cluster *kube.Client, name, key string, value *string) error {
	return c.patchClaim(cluster, name, map[string]any{"annotations": map[string]*string{key: value}})
}

func (c *call) labelCopy(cluster *kube.Client, name string, value *string) error {
	return c.patchClaim(cluster, name, map[string]any{"labels": map[string]*string{manifest.LabelCopy: value}})
}

func (c *call) patchClaim(cluster *kube.Client, name string, metadata map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = cluster.Claims.Patch(c.ctx, name, types.MergePatchType, patch)
	return err
}

// isCopy tells the Pod that copies a disk from its attachment, which has the same name.
func isCopy(pod *corev1.Pod) bool { return pod.Labels[manifest.LabelRole] == manifest.RoleCopy }

// copyRuns reports that the copy reads the disk; one that has not started can be ended at any time.
func copyRuns(pod *corev1.Pod) bool { return kube.Started(pod) && !kube.Finished(pod) }

// copying refuses a disk that is being copied.
func copying(pod *corev1.Pod) error {
	return typed(typeCloudError, "disk %s is being copied to disk %s by update_disk: repeat that call, or wait until Pod %s has ended",
		pod.Labels[manifest.LabelDisk], pod.Annotations[manifest.AnnotationCopiedTo], pod.Name)
}
