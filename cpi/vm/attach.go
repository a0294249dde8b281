package vm

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// DiskHint tells the agent where a disk is.
type DiskHint struct {
	Path string `json:"path"`
}

// Attach makes the disk appear in the running machine and returns where. Attaching a disk that is
// attached to this VM changes nothing; one that is attached to another VM is refused.
func (s *Session) Attach(vmCID, diskCID string) (DiskHint, error) {
	hint := DiskHint{Path: manifest.DevicePath(diskCID)}
	vmPod, attachments, err := s.getWithAttachments(vmCID)
	if err != nil {
		return hint, err
	}
	s.SetSubject(s.Pods.Reference(vmPod))
	s.SetDetail("disk " + diskCID)
	strategy := s.strategyForPod(vmPod)
	if vmPod, err = strategy.ensureScheduled(vmPod); err != nil {
		return hint, err
	}
	pvc, err := s.diskSession().GetPVC(diskCID)
	if err != nil {
		return hint, err
	}
	if err := s.validateAttach(pvc, vmPod, attachments); err != nil {
		return hint, err
	}
	if pvc, err = s.diskSession().ResolveCopy(pvc); err != nil {
		return hint, err
	}
	attachment, owned, err := s.attachAndWait(pvc, vmPod)
	if err != nil {
		return hint, err
	}
	return hint, strategy.exposeDisk(pvc, vmPod, attachment, owned)
}

// validateAttach refuses a machine that does not run, and a disk that it cannot have, beside those that it has,
// or that another has.
func (s *Session) validateAttach(pvc *corev1.PersistentVolumeClaim, vmPod *corev1.Pod, attachments []*corev1.Pod) error {
	switch {
	case vmPod.DeletionTimestamp != nil:
		return call.NoVM(vmPod.Name)
	case kube.Finished(vmPod), vmPod.Spec.NodeName == "":
		return call.CloudError.Errorf("VM %s does not run (its Pod is %s): no disk can be attached to it", vmPod.Name, vmPod.Status.Phase)
	}
	if err := s.CheckNodeAvailable(vmPod); err != nil {
		return err
	}
	if err := s.strategyForPod(vmPod).validateDisk(pvc, vmPod); err != nil {
		return err
	}
	if err := validateMigration(pvc, vmPod, attachments); err != nil {
		return err
	}
	return s.diskSession().CheckFreeFor(pvc, vmPod.Name)
}

// validateMigration refuses a second disk where one of the two is a directory: the director attaches two to
// move the data from one to the other, and the agent fails at that only after it has begun.
func validateMigration(pvc *corev1.PersistentVolumeClaim, vmPod *corev1.Pod, attachments []*corev1.Pod) error {
	for _, other := range attachments {
		diskCID := other.Labels[manifest.LabelDisk]
		if diskCID != pvc.Name && (manifest.IsDirectory(pvc) || manifest.IsDirectory(other)) {
			return call.NotSupported.Errorf("disk %s cannot be attached to VM %s beside disk %s: one of them has attach: bind, "+
				"and the agent cannot migrate data from or to such a disk. Let the CPI do it (director.enable_cpi_update_disk)",
				pvc.Name, vmPod.Name, diskCID)
		}
	}
	return nil
}

// attachAndWait attaches the disk, and leaves nothing behind when that fails. mine tells that this call has attached it, or
// has adopted an attachment that was not ready.
func (s *Session) attachAndWait(pvc *corev1.PersistentVolumeClaim, vmPod *corev1.Pod) (attachment *corev1.Pod, owned bool, err error) {
	pvc, attachment, owned, err = s.ensureAttachment(pvc, vmPod)
	if attachment == nil {
		return nil, false, err
	}
	if err == nil && attachment.DeletionTimestamp == nil {
		dependencies := append(s.WatchNode(vmPod.Spec.NodeName), s.diskSession().WatchProvisioning(pvc)...)
		err = s.waitForAttachment(attachment, append(dependencies, s.watchNodeCapacity(attachment)))
	}
	if err == nil {
		err = s.diskSession().MarkFormatted(pvc, vmPod.Name, attachment.UID)
	}
	if err != nil && owned {
		err = errors.Join(err, s.rollbackAttachment(attachment))
	}
	return attachment, owned, err
}

// ensureAttachment creates the attachment Pod, or adopts the one that exists for the same VM, makes it the owner of the
// disk, and lets it start. The Pod is returned as soon as there is one, with an error too.
func (s *Session) ensureAttachment(pvc *corev1.PersistentVolumeClaim, vmPod *corev1.Pod) (
	current *corev1.PersistentVolumeClaim, attachment *corev1.Pod, owned bool, err error) {

	desired, err := s.buildAttachment(pvc, vmPod)
	if err != nil {
		return pvc, nil, false, err
	}
	pod := s.PodOptions.ApplyToHelperPod(desired.Pod())
	attachment, created, err := call.EnsureOwned(s.Call, s.Pods, pod, func(existing *corev1.Pod) (call.Verdict, error) {
		keep, err := s.resolveExistingAttachment(existing, vmPod)
		switch {
		case !keep || err != nil:
			return call.Retry, err
		case attachMayHaveSucceeded(existing):
			return call.Share, nil
		}
		return call.Adopt, nil
	})
	if err != nil {
		return pvc, nil, false, err
	}
	owned = created || !kube.Ready(attachment)
	pvc, attachment, err = s.diskSession().AssignAndStart(pvc, vmPod.Name, attachment, func(now *corev1.PersistentVolumeClaim) error {
		if err := s.diskSession().CheckFreeFor(now, vmPod.Name); err != nil {
			return err
		}
		return disk.CheckNoPendingCopy(now)
	})
	return pvc, attachment, owned, err
}

// resolveExistingAttachment reports whether the Pod that has the attachment's name attaches the disk to this VM. One that is on its
// way out is waited for.
func (s *Session) resolveExistingAttachment(existing, vmPod *corev1.Pod) (keep bool, err error) {
	vmCID := existing.Labels[manifest.LabelVM]
	switch {
	case existing.DeletionTimestamp != nil && vmCID == vmPod.Name && !exclusivityCheckPassed(existing):
		return s.diskStillInUse(existing)
	case existing.DeletionTimestamp != nil:
		err := s.WaitForDeletion(existing)
		return false, s.ExplainTimeout(existing, err, fmt.Sprintf("disk %s stays with VM %s, which it is being detached from, "+
			"until nothing there uses it", existing.Labels[manifest.LabelDisk], vmCID))
	case disk.IsCopyPod(existing), vmCID != vmPod.Name:
		if superseded, err := s.diskSession().DeleteSuperseded(existing); superseded || err != nil {
			return false, err
		}
		if disk.IsCopyPod(existing) {
			return false, disk.CopyingError(existing)
		}
		return false, disk.AttachedError(existing)
	case exclusivityCheckRunning(existing) && !kube.Finished(existing):
		// A detach_disk is, or was, at it: what its proof finds decides.
		err := s.waitForExclusivityCheck(existing)
		if errors.Is(err, call.ErrResultLost) {
			return true, nil
		}
		return false, err
	case exclusivityCheckPassed(existing) || kube.Finished(existing):
		// A detach_disk that was cut short, or an eviction: finish the former before a new one.
		return false, s.DeletePodAndWait(existing)
	}
	return true, nil
}

// attachmentExitTimeout is how long an attachment that was told to end may take when its device is free.
const attachmentExitTimeout = 10 * time.Second

// diskStillInUse reports that somebody has told the attachment to end, but that the machine uses the disk: the attachment
// stays until that is over, and there can be no other. One whose device is free leaves soon.
func (s *Session) diskStillInUse(attachment *corev1.Pod) (bool, error) {
	bounded, cancel := s.withTimeout(attachmentExitTimeout)
	defer cancel()
	err := bounded.WaitForDeletion(attachment)
	if !errors.Is(err, kube.ErrTimeout) || s.Ctx.Err() != nil {
		return false, err
	}
	now, err := s.Pods.Get(s.Ctx, attachment.Name)
	switch {
	case errors.Is(err, kube.ErrNotFound) || err == nil && now.UID != attachment.UID:
		return false, nil
	case err != nil:
		return false, err
	case !kube.Ready(now):
		return false, s.WaitForDeletion(now)
	}
	s.warnAttachmentTerminating(now)
	return true, nil
}

func (s *Session) warnAttachmentTerminating(attachment *corev1.Pod) {
	s.Log.Warn("somebody has told the attachment of a disk to end: it stays until the disk is free",
		"disk", attachment.Labels[manifest.LabelDisk], "vm", attachment.Labels[manifest.LabelVM])
}

// buildAttachment reads from the claim what create_disk wrote there.
func (s *Session) buildAttachment(pvc *corev1.PersistentVolumeClaim, vmPod *corev1.Pod) (manifest.Attachment, error) {
	size, err := disk.SizeOf(pvc)
	if err != nil {
		return manifest.Attachment{}, err
	}
	return manifest.Attachment{
		Disk: pvc.Name, SizeMiB: size, Mode: manifest.VolumeMode(pvc), Bind: manifest.IsDirectory(pvc), VM: vmPod, Director: s.Director,
		Filesystem: pvc.Annotations[manifest.AnnotationFilesystem], Formatted: manifest.IsFormatted(pvc), Reserve: manifest.IsSpaceReserved(pvc),
		PriorityClass: s.Disk.AttachmentPriorityClass,
	}, nil
}

// waitForAttachment waits until the device is there, unless one of what that depends on fails.
func (s *Session) waitForAttachment(attachment *corev1.Pod, dependencies []call.DependencyWatch) error {
	diskCID, vmCID := attachment.Labels[manifest.LabelDisk], attachment.Labels[manifest.LabelVM]
	var diagnosis kube.PodStartup
	err := s.WaitForPod(dependencies, attachment, func(now *corev1.Pod) (bool, error) {
		if now == nil || now.DeletionTimestamp != nil {
			return false, call.CloudError.Errorf("disk %s was detached while it was being attached", diskCID)
		}
		if kube.Ready(attachment) {
			return true, nil
		}
		if failed := attachmentFailure(attachment); failed != "" {
			return false, call.CloudError.Errorf("disk %s cannot be attached: %s", diskCID, failed)
		}
		if reason := kube.VolumeNodeConflict(attachment); reason != "" {
			return false, call.CloudError.Errorf("disk %s cannot be attached to VM %s: "+
				"its volume cannot be reached from the VM's node: %s", diskCID, vmCID, reason)
		}
		if diagnosis.Failed(attachment) {
			return false, call.CloudError.Errorf("disk %s cannot be attached: %s", diskCID, s.DiagnosePod(attachment))
		}
		return false, nil
	})
	return s.ExplainTimeout(attachment, err, "disk "+diskCID+" did not appear in VM "+vmCID)
}

// attachmentFailure returns what the attachment's own script gave as its reason to fail, unless it is trying again.
func attachmentFailure(attachment *corev1.Pod) string {
	status := manifest.OwnContainerStatus(attachment)
	if status.State.Running != nil {
		return ""
	}
	for _, terminated := range []*corev1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
		if terminated != nil && terminated.ExitCode == 1 {
			return strings.TrimSpace(terminated.Message)
		}
	}
	return ""
}

// attachMayHaveSucceeded reports that a call may have answered with this attachment: it is ready, and the VM has the disk with that. No
// call that fails removes it.
func attachMayHaveSucceeded(attachment *corev1.Pod) bool {
	return kube.Ready(attachment) && !manifest.IsRecreated(attachment)
}

// rollbackAttachment removes what a failed attach_disk made, unless another call has adopted it, or answered with it. On a node
// that does not answer it stays behind, to be removed with its VM: the call's error says so already.
func (s *Session) rollbackAttachment(attachment *corev1.Pod) error {
	cleanup, cancel := s.detached()
	defer cancel()
	gone, err := cleanup.DeletePodIfOwned(attachment, attachMayHaveSucceeded)
	if errors.Is(err, call.ErrNodeUnreachable) {
		return nil
	}
	if !gone || err != nil {
		return err
	}
	_, err = cleanup.diskSession().Release(attachment.Labels[manifest.LabelDisk], ownerRecord(attachment))
	return err
}

// ownerRecord is the record of a disk that this Pod attaches.
func ownerRecord(attachment *corev1.Pod) manifest.DiskOwner {
	return manifest.DiskOwner{VM: attachment.Labels[manifest.LabelVM], Pod: attachment.UID}
}
