package vm

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// DiskHint is the result of attach_disk: the path of the device in the VM, for the agent.
type DiskHint struct {
	Path string `json:"path"`
}

// Attach attaches the disk to the running VM, and returns its path there. It has no effect if the disk is already attached to this
// VM, and fails if it is attached to another VM.
func (s *Session) Attach(vmCID, diskCID string) (DiskHint, error) {
	hint := DiskHint{Path: manifest.DevicePath(diskCID)}
	vmPod, attachments, err := s.getWithAttachments(vmCID)
	if err != nil {
		return hint, err
	}
	s.SetSubject(s.Pods.Reference(vmPod.Pod))
	s.SetDetail("disk " + diskCID)
	if vmPod.HasRecreateStrategy() && vmPod.Spec.NodeName == "" { // for example because its Pod was just recreated
		if vmPod, err = s.recreateMissingPodAndWait(vmPod.Name); err != nil {
			return hint, err
		}
	}
	pvc, err := s.diskSession().GetPVC(diskCID)
	if err != nil {
		return hint, err
	}
	if err := s.validateAttach(pvc, vmPod, attachments); err != nil {
		return hint, err
	}
	s.EnsureNodeImage()
	attachment, owned, err := s.attachAndWait(pvc, vmPod)
	if err != nil {
		return hint, err
	}
	return hint, s.strategy(vmPod.HasRecreateStrategy()).publishDisk(pvc, vmPod, attachment, owned)
}

// validateAttach rejects a VM that is not running, a disk that the VM's disk strategy or its other disks do not permit, and a disk of
// another VM.
func (s *Session) validateAttach(pvc manifest.DiskPVC, vmPod manifest.VMPod, attachments []manifest.AttachmentPod) error {
	switch {
	case vmPod.DeletionTimestamp != nil:
		return call.VMNotFoundError(vmPod.Name)
	case kube.IsFinished(vmPod.Pod), vmPod.Spec.NodeName == "":
		return call.CodeVMNotRunning.Errorf("cannot attach a disk to VM %s: its Pod is %s; recreate the VM", vmPod.Name, vmPod.State())
	}
	if err := s.CheckNodeAvailable(vmPod); err != nil {
		return err
	}
	if err := s.strategy(vmPod.HasRecreateStrategy()).validateDisk(pvc, vmPod, attachments); err != nil {
		return err
	}
	return s.diskSession().CheckFreeFor(pvc, vmPod.Name)
}

// attachAndWait creates the attachment Pod, and waits until it is ready. If the Pod finishes, for example because the kubelet rejects
// or evicts it, attachAndWait creates it once more. If it fails, it deletes the Pod. owned reports whether this call created the Pod, or
// adopted one that was not ready.
func (s *Session) attachAndWait(pvc manifest.DiskPVC, vmPod manifest.VMPod) (attachment manifest.AttachmentPod, owned bool, err error) {
	attachment, owned, err = s.tryAttach(pvc, vmPod)
	if !errors.Is(err, errAttachmentFinished) {
		return attachment, owned, err
	}
	s.Log.Warn("the attachment Pod finished before it was ready; creating it again", "disk", pvc.Name, "error", err)
	if pvc, err = s.diskSession().GetPVC(pvc.Name); err != nil {
		return attachment, false, err
	}
	return s.tryAttach(pvc, vmPod)
}

// tryAttach is one attempt of attachAndWait.
func (s *Session) tryAttach(pvc manifest.DiskPVC, vmPod manifest.VMPod) (attachment manifest.AttachmentPod, owned bool, err error) {
	pvc, attachment, owned, err = s.ensureAttachment(pvc, vmPod)
	if attachment.Pod == nil {
		return attachment, false, err
	}
	if err == nil && attachment.DeletionTimestamp == nil {
		dependencies := append(s.WatchNode(vmPod.Spec.NodeName), s.diskSession().WatchProvisioning(pvc)...)
		err = s.waitForAttachment(attachment, append(dependencies, s.watchNodeCapacity(attachment)))
	}
	if err == nil {
		err = s.diskSession().MarkFormatted(pvc, attachment)
	}
	if err != nil && owned {
		err = errors.Join(err, s.rollbackAttachment(attachment))
	}
	return attachment, owned, err
}

// ensureAttachment creates the attachment Pod, or adopts an existing one for the same VM, makes it the owner of the disk, and lets it
// start. If a step after the creation fails, ensureAttachment returns the Pod together with the error.
func (s *Session) ensureAttachment(pvc manifest.DiskPVC, vmPod manifest.VMPod) (
	current manifest.DiskPVC, attachment manifest.AttachmentPod, owned bool, err error) {

	desired, err := s.buildAttachment(pvc, vmPod)
	if err != nil {
		return pvc, attachment, false, err
	}
	pod := s.PodOptions.ApplyToHelperPod(desired.Pod().Pod)
	pod, created, err := call.EnsureOwned(s.Call, s.Pods, pod, func(pod *corev1.Pod) (call.Decision, error) {
		existing := manifest.AttachmentPod{Pod: pod}
		reusable, err := s.resolveExistingAttachment(existing, vmPod)
		switch {
		case !reusable || err != nil:
			return call.Recreate, err
		case attachMayHaveSucceeded(existing):
			return call.Share, nil
		}
		return call.Adopt, nil
	})
	attachment = manifest.AttachmentPod{Pod: pod}
	if err != nil {
		return pvc, attachment, created, err
	}
	owned = created || !kube.IsReady(pod)
	validate := func(current manifest.DiskPVC) error {
		if owner, _ := current.Owner(); (owner.VM == vmPod.Name) != attachment.IsReattached() { // changed since the PVC was read
			return call.CodeDiskBusy.Errorf("cannot attach disk %s: a concurrent call attached or detached it; retry", current.Name)
		}
		return s.diskSession().CheckFreeFor(current, vmPod.Name)
	}
	pvc, attachment, err = s.diskSession().AssignAndStart(pvc, attachment, validate)
	return pvc, attachment, owned, err
}

// resolveExistingAttachment reports whether the existing Pod with the attachment Pod's name attaches the disk to this VM. If the
// Pod is being deleted, or an exclusivity check is running in it, resolveExistingAttachment waits for the result. It deletes a Pod
// that passed the check or is finished, and fails if an unfinished Pod belongs to another VM.
func (s *Session) resolveExistingAttachment(existing manifest.AttachmentPod, vmPod manifest.VMPod) (reusable bool, err error) {
	vmCID := existing.VM()
	switch {
	case existing.DeletionTimestamp != nil && vmCID == vmPod.Name && !exclusivityCheckPassed(existing):
		return s.diskStillInUse(existing)
	case isReleased(existing):
		return false, s.diskSession().WaitForRemoval(existing)
	case existing.DeletionTimestamp != nil:
		err := s.WaitForDeletion(existing.Pod)
		message := fmt.Sprintf("disk %s is being detached, but is still in use in VM %s; stop the processes that use it there",
			existing.Disk(), vmCID)
		return false, s.ExplainTimeout(call.CodeDiskBusy, existing.Pod, err, message)
	case vmCID != vmPod.Name && !kube.IsFinished(existing.Pod):
		if superseded, err := s.diskSession().DeleteSuperseded(existing); superseded || err != nil {
			return false, err
		}
		return false, s.diskSession().AttachedError(existing)
	case exclusivityCheckRunning(existing) && !kube.IsFinished(existing.Pod):
		// A detach_disk, perhaps an interrupted one, started the exclusivity check. Its result decides.
		err := s.waitForExclusivityCheck(existing)
		if errors.Is(err, call.ErrResultLost) {
			return true, nil
		}
		return false, err
	case exclusivityCheckPassed(existing) || kube.IsFinished(existing.Pod):
		// After an interrupted detach_disk or an eviction, the Pod must be gone before a new one is created. A finished Pod of another VM
		// does not own the disk: CheckFreeFor found that out.
		return false, s.DeletePodAndWait(existing.Pod)
	}
	return true, nil
}

// attachmentExitTimeout is the time within which a deleted attachment Pod exits if its device is free.
const attachmentExitTimeout = 10 * time.Second

// diskStillInUse reports whether an attachment Pod that is being deleted by another client stays, because the VM uses the disk. While
// it stays, no other attachment Pod can be created. If the device is free, the Pod exits within attachmentExitTimeout.
func (s *Session) diskStillInUse(attachment manifest.AttachmentPod) (bool, error) {
	bounded, cancel := s.withTimeout(attachmentExitTimeout)
	defer cancel()
	err := bounded.WaitForDeletion(attachment.Pod)
	if !errors.Is(err, kube.ErrTimeout) || s.Ctx.Err() != nil {
		return false, err
	}
	current, err := s.Pods.Get(s.Ctx, attachment.Name)
	switch {
	case errors.Is(err, kube.ErrNotFound) || err == nil && current.UID != attachment.UID:
		return false, nil
	case err != nil:
		return false, err
	case !kube.IsReady(current):
		return false, s.WaitForDeletion(current)
	}
	s.warnAttachmentTerminating(manifest.AttachmentPod{Pod: current})
	return true, nil
}

func (s *Session) warnAttachmentTerminating(attachment manifest.AttachmentPod) {
	s.Log.Warn("the attachment Pod is being deleted by another client; it stays until the disk is free",
		"disk", attachment.Disk(), "vm", attachment.VM())
}

// buildAttachment returns the attachment of the disk to the VM, with the disk's properties from its PVC.
func (s *Session) buildAttachment(pvc manifest.DiskPVC, vmPod manifest.VMPod) (manifest.Attachment, error) {
	size, err := disk.RecordedSizeMiB(pvc)
	if err != nil {
		return manifest.Attachment{}, err
	}
	nodeImage, err := s.NodeImageReference()
	if err != nil {
		return manifest.Attachment{}, err
	}
	owner, _ := pvc.Owner()
	return manifest.Attachment{
		Disk:          pvc.Name,
		SizeMiB:       size,
		Filesystem:    pvc.Filesystem(),
		Formatted:     pvc.IsFormatted(),
		Preallocate:   pvc.IsPreallocated(),
		Mode:          pvc.VolumeMode(),
		Reattached:    owner.VM == vmPod.Name,
		VM:            vmPod,
		Director:      s.Director,
		NodeImage:     nodeImage,
		PriorityClass: s.Disk.AttachmentPriorityClass,
	}, nil
}

// errAttachmentFinished reports that the attachment Pod finished before it was ready.
var errAttachmentFinished = errors.New("the attachment Pod finished")

// waitForAttachment waits until the attachment Pod is ready. It fails early if the Pod cannot become ready, or if a dependency watch
// fails.
func (s *Session) waitForAttachment(attachment manifest.AttachmentPod, dependencies []call.DependencyWatch) error {
	diskCID, vmCID := attachment.Disk(), attachment.VM()
	var diagnosis kube.PodStartup
	err := s.WaitForPod(dependencies, attachment.Pod, func(current *corev1.Pod) (bool, error) {
		if current == nil || current.DeletionTimestamp != nil {
			return false, call.CodeDiskBusy.Errorf("cannot attach disk %s: it was detached by a concurrent call; retry", diskCID)
		}
		if kube.IsFinished(attachment.Pod) {
			return false, call.CodeDiskAttachFailed.Errorf("cannot attach disk %s to VM %s: %w on node %s: %s",
				diskCID, vmCID, errAttachmentFinished, attachment.Spec.NodeName, s.DiagnosePod(attachment.Pod))
		}
		if kube.IsReady(attachment.Pod) {
			return true, nil
		}
		if failed := attachmentFailure(attachment); failed != "" {
			return false, call.CodeDiskAttachFailed.Errorf("cannot attach disk %s: %s", diskCID, failed)
		}
		if reason := kube.VolumeNodeConflict(attachment.Pod); reason != "" {
			return false, call.CodeDiskOnOtherNode.Errorf("cannot attach disk %s to VM %s: the volume is not accessible from the VM's node: %s",
				diskCID, vmCID, reason)
		}
		if diagnosis.Failed(attachment.Pod, manifest.OwnContainerName(attachment.Pod)) {
			return false, s.StartError(call.CodeDiskAttachFailed, attachment.Pod, "cannot attach disk "+diskCID)
		}
		return false, nil
	})
	return s.ExplainTimeout(call.CodeDiskAttachTimeout, attachment.Pod, err, "timed out attaching disk "+diskCID+" to VM "+vmCID)
}

// attachmentFailure returns the termination message of the attachment's program if it failed with a reason and is not running
// again, else "".
func attachmentFailure(attachment manifest.AttachmentPod) string {
	status := manifest.OwnContainerStatus(attachment.Pod)
	if status.State.Running != nil {
		return ""
	}
	for _, terminated := range []*corev1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
		if terminated != nil && terminated.ExitCode == 1 {
			return manifest.TerminationMessage(terminated)
		}
	}
	return ""
}

// attachMayHaveSucceeded reports whether an attach_disk may have succeeded with this attachment Pod: the Pod is ready, and it does not
// belong to a VM with disk_strategy: recreate, which gets the disk later. A failed call must not delete such a Pod.
func attachMayHaveSucceeded(attachment manifest.AttachmentPod) bool {
	return kube.IsReady(attachment.Pod) && !attachment.HasRecreateStrategy()
}

// isUnguarded reports whether the VM may use the disk, and no process in the attachment Pod waits until it does not: the Pod may have
// published the disk before its container was killed.
func isUnguarded(attachment manifest.AttachmentPod) bool {
	status := manifest.OwnContainerStatus(attachment.Pod)
	failedBefore := status.RestartCount == 0 && attachmentFailure(attachment) != "" // the first run failed before it published the disk
	return kube.HasRun(status) && status.State.Running == nil && !failedBefore && !attachment.HasRecreateStrategy()
}

// rollbackAttachment deletes the attachment Pod of a failed attach_disk and releases the disk, unless another call adopted the Pod,
// or may have succeeded with it for a VM that still runs. It does not release a disk that the VM already had, because the VM may still
// use it. On a lost node the Pod remains until the VM is deleted; the error of the call reports the node.
func (s *Session) rollbackAttachment(attachment manifest.AttachmentPod) error {
	cleanup, cancel := s.detached(call.CleanupTimeout)
	defer cancel()
	vmFinished, err := hotPlugStrategy{cleanup}.vmFinished(attachment.VM())
	if err != nil {
		return err
	}
	if attachment.HasRecreateStrategy() {
		template, err := cleanup.GetPodTemplate(attachment.VM())
		if err == nil && slices.Contains(manifest.DiskCIDs(template.Template.Spec), attachment.Disk()) {
			return nil // the VM already had the disk
		}
		if err != nil && !call.VMNotFound.Is(err) {
			return err
		}
	}
	unguarded := false
	gone, err := cleanup.DeletePodIfOwned(attachment.Pod, func(current *corev1.Pod) bool {
		existing := manifest.AttachmentPod{Pod: current}
		unguarded = !vmFinished && isUnguarded(existing)
		return unguarded || !vmFinished && attachMayHaveSucceeded(existing)
	})
	if unguarded && err == nil && !gone {
		s.Log.Warn("keeping the attachment Pod of the failed call: its container was killed, and the VM may use the disk",
			"disk", attachment.Disk(), "vm", attachment.VM())
	}
	if errors.Is(err, call.ErrNodeUnreachable) {
		return nil
	}
	if !gone || err != nil || attachment.IsReattached() && !vmFinished {
		return err
	}
	_, err = cleanup.diskSession().Release(attachment.Disk(), attachment.OwnerRecord())
	return err
}
