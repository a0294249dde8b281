package cpi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cloudfoundry/bosh-cpi-go/apiv1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// diskHint tells the agent where the disk is.
type diskHint struct {
	Path string `json:"path"`
}

// attachDisk makes the disk appear in the running machine and answers where. Attaching a disk that is
// attached to this VM changes nothing; one that is attached to another VM is refused.
func (c *call) attachDisk(vmCID apiv1.VMCID, diskCID apiv1.DiskCID) (diskHint, error) {
	vm, disk := vmCID.AsString(), diskCID.AsString()
	hint := diskHint{Path: manifest.DevicePath(disk)}
	cluster, err := c.cluster()
	if err != nil {
		return hint, err
	}
	machine, attached, err := c.scheduled(cluster, vm)
	if err != nil {
		return hint, err
	}
	claim, err := c.claim(cluster, disk)
	if err != nil {
		return hint, err
	}
	switch {
	case machine.DeletionTimestamp != nil:
		return hint, vmNotFound(vm)
	case kube.Finished(machine), machine.Spec.NodeName == "":
		return hint, typed(typeCloudError, "VM %s does not run (its Pod is %s): no disk can be attached to it", vm, machine.Status.Phase)
	}
	if err := c.onNode(cluster, machine); err != nil {
		return hint, err
	}
	if err := c.attachable(cluster, claim, machine, attached); err != nil {
		return hint, err
	}
	if err := c.settleCopy(cluster, claim); err != nil {
		return hint, err
	}
	attachment, mine, err := c.bringAttached(cluster, claim, machine)
	if err == nil && manifest.Recreated(machine) {
		err = c.giveDisk(cluster, machine, claim, attachment, mine)
	}
	return hint, err
}

// bringAttached attaches the disk, and leaves nothing behind when that fails. mine tells that it was not
// attached before.
func (c *call) bringAttached(cluster *kube.Client, claim *corev1.PersistentVolumeClaim, machine *corev1.Pod) (attachment *corev1.Pod, mine bool, err error) {
	attachment, mine, err = c.bringAttachment(cluster, claim, machine)
	if err != nil {
		return nil, false, err
	}
	depends := append(c.answers(cluster, machine.Spec.NodeName), c.provisions(cluster, claim)...)
	err = c.awaitAttachment(cluster, attachment, depends)
	if err != nil && mine {
		err = errors.Join(err, c.undoAttachment(cluster, attachment))
	}
	return attachment, mine, err
}

// withAttachments answers the machine's Pod and those of its disks. A machine that is made again for each
// disk gets what it lacks of them.
func (c *call) withAttachments(cluster *kube.Client, vm string) (machine *corev1.Pod, attachments []*corev1.Pod, err error) {
	for {
		found, err := cluster.Pods.List(c.ctx, ofVM(vm))
		if err != nil {
			return nil, nil, err
		}
		attachments := only(manifest.RoleAttachment, found.Items)
		for _, machine := range only(manifest.RoleVM, found.Items) {
			if !manifest.Recreated(machine) || runs(machine) && len(lacking(machine, attachments)) == 0 {
				return machine, attachments, nil
			}
		}
		if err := c.revive(cluster, vm); err != nil {
			return nil, nil, err
		}
	}
}

// scheduled is withAttachments of a machine that can get a disk: one that was just made again has to have a
// node first.
func (c *call) scheduled(cluster *kube.Client, vm string) (machine *corev1.Pod, attachments []*corev1.Pod, err error) {
	machine, attachments, err = c.withAttachments(cluster, vm)
	if err != nil || !manifest.Recreated(machine) || machine.Spec.NodeName != "" {
		return machine, attachments, err
	}
	machine, err = c.boot(cluster, vm)
	return machine, attachments, err
}

// attachable refuses a disk that the machine cannot have, beside those that it has, or that another has.
func (c *call) attachable(cluster *kube.Client, claim *corev1.PersistentVolumeClaim, machine *corev1.Pod, attached []*corev1.Pod) error {
	if manifest.Recreated(machine) {
		if err := recreatable(claim, machine); err != nil {
			return err
		}
	}
	if err := migratable(claim, machine, attached); err != nil {
		return err
	}
	return c.notVolumeOf(cluster, claim, machine.Name)
}

// migratable refuses a second disk where one of the two is a directory: the director attaches two to
// move the data from one to the other, and the agent fails at that only after it has begun.
func migratable(claim *corev1.PersistentVolumeClaim, machine *corev1.Pod, attached []*corev1.Pod) error {
	for _, other := range attached {
		disk := other.Labels[manifest.LabelDisk]
		if disk != claim.Name && (manifest.IsDirectory(claim) || manifest.IsDirectory(other)) {
			return typed(typeNotSupported, "disk %s cannot be attached to VM %s beside disk %s: one of them has attach: bind, "+
				"and the agent cannot migrate data from or to such a disk. Let the CPI do it (director.enable_cpi_update_disk)",
				claim.Name, machine.Name, disk)
		}
	}
	return nil
}

// attachmentOf reads from the claim what create_disk wrote there.
func attachmentOf(claim *corev1.PersistentVolumeClaim, machine *corev1.Pod, director string) (manifest.Attachment, error) {
	size, err := sizeOf(claim)
	if err != nil {
		return manifest.Attachment{}, err
	}
	return manifest.Attachment{
		Disk: claim.Name, SizeMiB: size, Mode: manifest.VolumeMode(claim), Bind: manifest.IsDirectory(claim), VM: machine, Director: director,
		Filesystem: claim.Annotations[manifest.AnnotationFilesystem],
	}, nil
}

// bringAttachment makes the attachment, or answers the one that is there already for the same VM.
// mine tells that this call made it.
func (c *call) bringAttachment(cluster *kube.Client, claim *corev1.PersistentVolumeClaim, machine *corev1.Pod) (attachment *corev1.Pod, mine bool, err error) {
	wanted, err := attachmentOf(claim, machine, c.director)
	if err != nil {
		return nil, false, err
	}
	return cluster.Pods.Bring(c.ctx, wanted.Pod(), func(left *corev1.Pod) (bool, error) {
		switch {
		case left.DeletionTimestamp != nil:
			err := c.awaitGone(cluster, left)
			return false, c.explainTimeout(cluster, left, err, fmt.Sprintf("disk %s stays with VM %s, which it is being detached from, until nothing there uses it",
				left.Labels[manifest.LabelDisk], left.Labels[manifest.LabelVM]))
		case isCopy(left):
			return false, copying(left)
		case left.Labels[manifest.LabelVM] != machine.Name:
			return false, attached(left)
		case releasing(left) && !kube.Finished(left):
			// A detach_disk is, or was, at it: what its proof finds decides.
			err := c.awaitProof(cluster, left)
			if errors.Is(err, errNeverStarts) {
				return true, nil
			}
			return false, err
		case released(left) || kube.Finished(left):
			// A detach_disk that was cut short, or an eviction: finish the former before a new one.
			return false, c.endPod(cluster, left)
		}
		return true, nil
	})
}

// awaitAttachment waits until the device is there, unless one of what that depends on fails.
func (c *call) awaitAttachment(cluster *kube.Client, attachment *corev1.Pod, depends []sentinel) error {
	disk := attachment.Labels[manifest.LabelDisk]
	err := c.awaitUnless(cluster, depends, kube.Selection{Name: attachment.Name}, kube.At(attachment), func(present []*corev1.Pod) (bool, error) {
		if len(present) == 0 || present[0].UID != attachment.UID || present[0].DeletionTimestamp != nil {
			return false, typed(typeCloudError, "disk %s was detached while it was being attached", disk)
		}
		*attachment = *present[0]
		if kube.Ready(attachment) {
			return true, nil
		}
		if failed := failure(attachment); failed != "" {
			return false, typed(typeCloudError, "disk %s cannot be attached: %s", disk, failed)
		}
		if reason := kube.VolumeOutOfReach(attachment); reason != "" {
			return false, typed(typeCloudError, "disk %s cannot be attached to VM %s: its volume cannot be reached from the VM's node: %s",
				disk, attachment.Labels[manifest.LabelVM], reason)
		}
		return false, nil
	})
	return c.explainTimeout(cluster, attachment, err, "disk "+disk+" did not appear in VM "+attachment.Labels[manifest.LabelVM])
}

// failure answers what the attachment's own script gave as its reason to fail, unless it is trying again.
func failure(attachment *corev1.Pod) string {
	for _, status := range attachment.Status.ContainerStatuses {
		if status.State.Running != nil {
			continue
		}
		for _, ended := range []*corev1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
			if ended != nil && ended.ExitCode == 1 {
				return strings.TrimSpace(ended.Message)
			}
		}
	}
	return ""
}

// undoAttachment removes what a failed attach_disk made. On a node that does not answer it stays behind,
// to be removed with its VM: the call's error says so already.
func (c *call) undoAttachment(cluster *kube.Client, attachment *corev1.Pod) error {
	undo, cancel := c.detached()
	defer cancel()
	if err := undo.endPod(cluster, attachment); !errors.Is(err, errNodeSilent) {
		return err
	}
	return nil
}

// detachDisk proves that nothing in the machine uses the disk, and only then removes its attachment.
//
// The proof is a container in the attachment's Pod that opens the device as a mount would: with
// O_EXCL, which fails as long as any filesystem in any mount namespace is on it. In the same moment it
// takes the device's node away, so that nothing can mount it any more.
func (c *call) detachDisk(vmCID apiv1.VMCID, diskCID apiv1.DiskCID) (any, error) {
	vm, disk := vmCID.AsString(), diskCID.AsString()
	cluster, err := c.cluster()
	if err != nil {
		return nil, err
	}
	attachment, err := cluster.Pods.Get(c.ctx, manifest.AttachmentName(disk))
	if errors.Is(err, kube.ErrNotFound) || (err == nil && attachment.Labels[manifest.LabelVM] != vm) {
		attachment, err = c.lostAttachment(cluster, vm, disk)
	}
	if err != nil {
		return nil, err
	}
	if manifest.Recreated(attachment) {
		return nil, c.takeDisk(cluster, vm, attachment)
	}
	if kube.Finished(attachment) {
		machine, err := cluster.Pods.Get(c.ctx, vm)
		if errors.Is(err, kube.ErrNotFound) || err == nil && kube.Finished(machine) {
			return nil, c.endPod(cluster, attachment) // what has ended uses nothing
		}
		if err != nil {
			return nil, err
		}
		// It was evicted, and the machine may use the device still: only an attachment that runs can tell.
		if _, err := c.attachDisk(vmCID, diskCID); err != nil {
			return nil, err
		}
		if attachment, err = cluster.Pods.Get(c.ctx, attachment.Name); err != nil {
			return nil, err
		}
	}
	off, err := c.nodeOff(cluster, attachment)
	if err != nil {
		return nil, err
	}
	for {
		proof := ""
		if kube.Started(attachment) && attachment.DeletionTimestamp == nil && !off {
			release := manifest.Release(attachment)
			proof = release.Name
			if attachment, err = c.addEphemeral(cluster, attachment, release); err != nil {
				return nil, err
			}
		}
		if err := c.awaitRelease(cluster, attachment, proof); !errors.Is(err, errNeverStarts) {
			return nil, err
		}
	}
}

// lostAttachment answers the attachment, made again, that was taken away from a disk among the machine's own
// volumes. Any other disk is not attached to this VM, or it or the VM does not exist.
func (c *call) lostAttachment(cluster *kube.Client, vm, disk string) (*corev1.Pod, error) {
	claim, err := c.claim(cluster, disk)
	if err != nil {
		return nil, err
	}
	user, err := c.volumeOf(cluster, claim)
	if err != nil {
		return nil, err
	}
	if user == vm {
		if err := c.revive(cluster, vm); err != nil {
			return nil, err
		}
		return cluster.Pods.Get(c.ctx, manifest.AttachmentName(disk))
	}
	there, err := c.exists(cluster, vm)
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, vmNotFound(vm)
	}
	return nil, typed(typeNotAttached, "disk %s is not attached to VM %s", disk, vm)
}

// addEphemeral adds a container that runs once to the attachment's Pod.
func (c *call) addEphemeral(cluster *kube.Client, attachment *corev1.Pod, container corev1.EphemeralContainer) (*corev1.Pod, error) {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"ephemeralContainers": []corev1.EphemeralContainer{container},
	}})
	if err != nil {
		return nil, err
	}
	return cluster.Pods.Patch(c.ctx, attachment.Name, types.StrategicMergePatchType, patch, "ephemeralcontainers")
}

// awaitRelease deletes the attachment once the container named proof has found its device free, on one
// and the same watch, and waits until it is gone. There is no proof to wait for when the attachment's
// container never ran, so that it has no device; when its node is off; or when it is on its way out: then
// it leaves by itself when its device is free.
func (c *call) awaitRelease(cluster *kube.Client, attachment *corev1.Pod, proof string) error {
	disk, asked := attachment.Labels[manifest.LabelDisk], attachment.DeletionTimestamp != nil
	depends := c.answers(cluster, attachment.Spec.NodeName)
	if proof != "" {
		depends = append(depends, c.starts(cluster, attachment.Name, proof))
	}
	err := c.awaitUnless(cluster, depends, kube.Selection{Name: attachment.Name}, kube.At(attachment), func(present []*corev1.Pod) (bool, error) {
		if len(present) == 0 || present[0].UID != attachment.UID {
			return true, nil
		}
		*attachment = *present[0]
		if asked || attachment.DeletionTimestamp != nil {
			return false, nil
		}
		if proof != "" {
			ended := manifest.Ended(attachment, proof)
			if ended == nil {
				return false, nil
			}
			if ended.ExitCode != 0 {
				return false, typed(typeCloudError, "disk %s is still in use in VM %s, nothing was detached: %s",
					disk, attachment.Labels[manifest.LabelVM], strings.TrimSpace(ended.Message))
			}
		}
		asked = true
		return false, cluster.Pods.Delete(c.ctx, attachment)
	})
	return c.explainTimeout(cluster, attachment, err, "disk "+disk+" was not released on node "+attachment.Spec.NodeName)
}

// awaitProof waits until the containers that prove the device free have all ended.
func (c *call) awaitProof(cluster *kube.Client, attachment *corev1.Pod) error {
	depends := append(c.answers(cluster, attachment.Spec.NodeName), c.starts(cluster, attachment.Name, manifest.LastRelease(attachment)))
	return c.awaitUnless(cluster, depends, kube.Selection{Name: attachment.Name}, kube.At(attachment), func(present []*corev1.Pod) (bool, error) {
		return len(present) == 0 || present[0].DeletionTimestamp != nil || !releasing(present[0]), nil
	})
}

// releasing reports that the last container to prove the device free has not ended.
func releasing(attachment *corev1.Pod) bool {
	last := manifest.LastRelease(attachment)
	return last != "" && manifest.Ended(attachment, last) == nil
}

// released reports that a detach_disk has proven the device free and taken its node away.
func released(attachment *corev1.Pod) bool {
	return slices.ContainsFunc(attachment.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool {
		return manifest.IsRelease(s.Name) && s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	})
}
