package vm

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// RestoreAttachments recreates the lost attachment Pods of the VM's disks, and repairs invalid owner records. Unlike GetDisks, it fails if
// it cannot.
func (s *Session) RestoreAttachments(vmCID string) error {
	vmPod, attachments, err := s.getWithAttachments(vmCID)
	if err != nil {
		return err
	}
	_, failed, err := hotPlugStrategy{s}.restoreLost(vmPod, attachments)
	return errors.Join(failed, err)
}

// restoreAndListDisks returns the disks that the VM owns, and recreates lost attachment Pods, if possible.
func (p hotPlugStrategy) restoreAndListDisks(vmPod manifest.VMPod, attachments []manifest.AttachmentPod) ([]string, error) {
	disks, failed, err := p.restoreLost(vmPod, attachments)
	if failed != nil {
		p.s.Log.Warn("cannot recreate lost attachment Pods", "error", failed)
	}
	return disks, err
}

// restoreLost returns the disks that the VM owns. If an attachment Pod is lost, because another client deleted it or the kubelet evicted
// it, the VM still uses the disk: restoreLost recreates the Pod, but does not wait for it. failed contains the reasons why it could not.
func (p hotPlugStrategy) restoreLost(vmPod manifest.VMPod, attachments []manifest.AttachmentPod) (disks []string, failed, err error) {
	owned, err := p.s.diskSession().ListOwnedBy(vmPod.Name)
	if err != nil {
		return nil, nil, err
	}
	disks = []string{}
	for _, pvc := range owned {
		isAttached, err := p.ensureAttachedIfOwned(vmPod, attachments, pvc)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("recreate the attachment Pod of disk %s: %w", pvc.Name, err))
		}
		if isAttached || err != nil {
			disks = append(disks, pvc.Name)
		}
	}
	return disks, failed, nil
}

// ensureAttachedIfOwned reports whether the VM still has the disk. If so, it ensures that the attachment Pod exists and owns the disk.
func (p hotPlugStrategy) ensureAttachedIfOwned(
	vmPod manifest.VMPod,
	attachments []manifest.AttachmentPod,
	pvc manifest.DiskPVC,
) (bool, error) {
	if !kube.IsActive(vmPod.Pod) || vmPod.Spec.NodeName == "" {
		return true, nil
	}
	var attachment manifest.AttachmentPod
	if i := slices.IndexFunc(attachments, func(a manifest.AttachmentPod) bool { return a.Disk() == pvc.Name }); i >= 0 {
		attachment = attachments[i]
	}
	if lost, _ := disk.InspectAttachment(vmPod, attachment); lost {
		return p.recreateAttachment(pvc, vmPod)
	}
	if _, ok := pvc.Owner(); ok || attachment.Pod == nil {
		return true, nil
	}
	return p.assignDisk(pvc, vmPod, attachment)
}

// recreateAttachment creates the lost attachment Pod of a disk of the VM, and deletes a finished one before. If another call just created
// it, recreateAttachment leaves it to that call. isAttached is false if the disk was detached since its PVC was read.
func (p hotPlugStrategy) recreateAttachment(pvc manifest.DiskPVC, vmPod manifest.VMPod) (isAttached bool, err error) {
	desired, err := p.s.buildAttachment(pvc, vmPod)
	if err != nil {
		return false, err
	}
	pod := desired.Pod().Pod
	if err := p.s.PrepareHelperPod(pod); err != nil {
		return false, err
	}
	pod, outcome, err := call.EnsureOwned(p.s.Call, p.s.Pods, pod, func(existing *corev1.Pod) call.Decision {
		if disk.StateOf(manifest.AttachmentPod{Pod: existing}).HasEnded() {
			return call.Replace
		}
		return call.Share
	}, p.s.DeletePodAndWait)
	if outcome != call.Created {
		return err == nil, err
	}
	attachment := manifest.AttachmentPod{Pod: pod}
	if err != nil {
		return false, errors.Join(err, p.s.rollbackAttachment(attachment))
	}
	p.s.Log.Warn("the attachment Pod of a disk in use was deleted or evicted; recreating it", "disk", pvc.Name, "vm", vmPod.Name)
	isAttached, err = p.assignDisk(pvc, vmPod, attachment)
	if isAttached {
		return true, nil
	}
	return false, errors.Join(err, p.s.rollbackAttachment(attachment))
}

// assignDisk records the attachment Pod as the owner of the disk. isAttached is false if the disk was detached since its PVC was
// read.
func (p hotPlugStrategy) assignDisk(
	pvc manifest.DiskPVC,
	vmPod manifest.VMPod, attachment manifest.AttachmentPod,
) (isAttached bool, err error) {
	previous, _ := pvc.Owner()
	_, _, err = p.s.diskSession().AssignAndStart(pvc, attachment, func(current manifest.DiskPVC) error {
		if owner, _ := current.Owner(); owner != previous {
			return notAttachedError(pvc.Name, vmPod.Name)
		}
		return nil
	})
	if call.DiskNotAttached.Is(err) || call.DiskNotFound.Is(err) {
		return false, nil
	}
	return err == nil, err
}
