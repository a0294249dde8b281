package cpi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// copyDisk makes a successor of the disk, with its data, and proves the copy. The disk itself stays as it
// is until the director has named the successor, so that it is there whatever becomes of this call's
// answer; see settleCopy.
//
// Each step finds what an earlier call has done: the disk is marked with its successor's name, the
// successor's claim tells whether its data is proven, and the Pod between them goes on without the call.
func (c *call) copyDisk(cluster *kube.Client, claim *corev1.PersistentVolumeClaim, wanted manifest.Disk) error {
	if err := c.copyable(cluster, claim, wanted); err != nil {
		return err
	}
	if claim.Annotations[manifest.AnnotationCopiedTo] != wanted.Name {
		if err := c.abandonCopy(cluster, claim); err != nil {
			return err
		}
		if err := c.annotateClaim(cluster, claim.Name, manifest.AnnotationCopiedTo, &wanted.Name); err != nil {
			return err
		}
	}
	successor, err := c.bringSuccessor(cluster, claim, wanted)
	if err == nil && successor.Labels[manifest.LabelCopy] == manifest.CopyUnproven {
		err = c.fillSuccessor(cluster, claim, successor)
	}
	if err != nil {
		undo, cancel := c.detached()
		defer cancel()
		return errors.Join(err, undo.undoCopy(cluster, claim, wanted.Name))
	}
	return c.endCopy(cluster, claim.Name)
}

// copyable refuses, before anything is changed, a disk that is attached, and a class that does not exist.
func (c *call) copyable(cluster *kube.Client, claim *corev1.PersistentVolumeClaim, wanted manifest.Disk) error {
	holder, err := cluster.Pods.Get(c.ctx, manifest.AttachmentName(claim.Name))
	switch {
	case errors.Is(err, kube.ErrNotFound):
		if err := c.notVolumeOf(cluster, claim, ""); err != nil {
			return err
		}
	case err != nil:
		return err
	case isCopy(holder) && (holder.Annotations[manifest.AnnotationCopiedTo] == wanted.Name || !copyRuns(holder)):
	case isCopy(holder):
		return copying(holder)
	case holder.DeletionTimestamp != nil:
		return typed(typeCloudError, "disk %s is still being released in VM %s", claim.Name, holder.Labels[manifest.LabelVM])
	default:
		return attached(holder)
	}
	if wanted.StorageClass == nil {
		return nil
	}
	classes, err := cluster.StorageClasses()
	if err != nil {
		return err
	}
	_, err = classes.Get(c.ctx, *wanted.StorageClass)
	if errors.Is(err, kube.ErrNotFound) {
		return invalid("cloud_properties.storage_class: the cluster has no StorageClass %s", *wanted.StorageClass)
	}
	return err
}

// bringSuccessor makes the successor's claim, of the disk's own class when no other is asked for.
func (c *call) bringSuccessor(cluster *kube.Client, claim *corev1.PersistentVolumeClaim, wanted manifest.Disk) (*corev1.PersistentVolumeClaim, error) {
	wanted.Namespace = cluster.Namespace
	wanted.Snapshot = "" // its content is the disk's
	wanted.StorageClass = cmp.Or(wanted.StorageClass, claim.Spec.StorageClassName)
	err := cluster.Claims.Converge(c.ctx, wanted.Name, func(left *corev1.PersistentVolumeClaim, exists bool) (kube.Plan[*corev1.PersistentVolumeClaim], error) {
		if exists && left.Annotations[manifest.AnnotationCopyOf] != claim.Name {
			return kube.Plan[*corev1.PersistentVolumeClaim]{}, typed(typeCloudError, "claim %s is in the way: it is no copy of disk %s", wanted.Name, claim.Name)
		}
		return kube.Plan[*corev1.PersistentVolumeClaim]{Create: wanted.Successor(claim)}, nil
	})
	if err != nil {
		return nil, err
	}
	return cluster.Claims.Get(c.ctx, wanted.Name)
}

// fillSuccessor copies the data and marks the successor as proven. A disk without a volume has no data.
func (c *call) fillSuccessor(cluster *kube.Client, claim, successor *corev1.PersistentVolumeClaim) error {
	if kube.Bound(claim) {
		machine, own, err := c.machineFor(cluster, claim)
		if err != nil {
			return err
		}
		wanted := manifest.Copy{Old: claim, New: successor, Machine: machine, Director: c.director}
		if own {
			wanted.Node = machine.Spec.NodeName
		}
		pod, err := c.bringCopy(cluster, wanted.Pod())
		if err != nil {
			return err
		}
		if err := c.awaitCopy(cluster, pod); err != nil {
			return err
		}
	}
	return c.labelCopy(cluster, successor.Name, new(manifest.CopyProven))
}

// machineFor answers a VM whose image has what the copy needs: the one of the disk's own instance, or
// else any other. own tells that it is the former: what is copied has to be where that one can reach it.
func (c *call) machineFor(cluster *kube.Client, claim *corev1.PersistentVolumeClaim) (machine *corev1.Pod, own bool, err error) {
	found, err := cluster.Pods.List(c.ctx, kube.Selection{Labels: manifest.OfDirector(c.director) + "," + manifest.LabelRole + "=" + manifest.RoleVM})
	if err != nil {
		return nil, false, err
	}
	instance := claim.Annotations[manifest.Prefix+"instance_id"] // as set_disk_metadata has it
	for _, pod := range found.Items {
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		if instance != "" && pod.Annotations[manifest.Prefix+"id"] == instance {
			return pod, true, nil
		}
		machine = cmp.Or(machine, pod)
	}
	if machine == nil {
		return nil, false, typed(typeNotSupported, "disk %s has to be copied, and no VM runs from whose image that could be done", claim.Name)
	}
	return machine, false, nil
}

// bringCopy makes the Pod, or answers the one that an earlier call has made. One that failed is replaced.
func (c *call) bringCopy(cluster *kube.Client, wanted *corev1.Pod) (*corev1.Pod, error) {
	pod, _, err := cluster.Pods.Bring(c.ctx, wanted, func(left *corev1.Pod) (bool, error) {
		switch {
		case left.DeletionTimestamp != nil:
			return false, c.awaitGone(cluster, left)
		case !isCopy(left):
			return false, attached(left)
		case left.Status.Phase == corev1.PodFailed || !slices.Equal(left.OwnerReferences, wanted.OwnerReferences):
			return false, c.endPod(cluster, left)
		}
		return true, nil
	})
	return pod, err
}

// awaitCopy waits until the copy has ended well. It has to start as soon as an attachment would.
func (c *call) awaitCopy(cluster *kube.Client, pod *corev1.Pod) error {
	disk := pod.Labels[manifest.LabelDisk]
	await := func(ctx context.Context, enough func(*corev1.Pod) bool) error {
		return cluster.Pods.Await(ctx, kube.Selection{Name: pod.Name}, kube.At(pod), func(present []*corev1.Pod) (bool, error) {
			if len(present) == 0 || present[0].UID != pod.UID || present[0].DeletionTimestamp != nil {
				return false, typed(typeCloudError, "the copy of disk %s was ended by someone else", disk)
			}
			*pod = *present[0]
			if pod.Status.Phase == corev1.PodFailed {
				return false, failedCopy(pod)
			}
			return pod.Status.Phase == corev1.PodSucceeded || enough(pod), nil
		})
	}
	starting, cancel := context.WithTimeout(c.ctx, c.config.Timeouts.AttachDisk.Duration)
	defer cancel()
	if err := await(starting, kube.Started); err != nil {
		return c.explainTimeout(cluster, pod, err, "the copy of disk "+disk+" did not start")
	}
	err := await(c.ctx, func(*corev1.Pod) bool { return false })
	return c.explainTimeout(cluster, pod, err, "disk "+disk+" was not copied in time (timeouts.update_disk)")
}

func failedCopy(pod *corev1.Pod) error {
	kind, why := typeCloudError, cmp.Or(pod.Status.Message, pod.Status.Reason)
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; ended != nil {
			why = cmp.Or(strings.TrimSpace(ended.Message), fmt.Sprintf("it ended with status %d (%s)", ended.ExitCode, ended.Reason))
			if ended.ExitCode == manifest.NoRoom {
				kind = typeNoDiskSpace
			}
		}
	}
	return typed(kind, "the copy failed, and disk %s is as it was: %s", pod.Labels[manifest.LabelDisk], why)
}
