package machine

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
func (s *Session) Attach(vm, cid string) (DiskHint, error) {
	hint := DiskHint{Path: manifest.DevicePath(cid)}
	machine, attachments, err := s.withAttachments(vm)
	if err != nil {
		return hint, err
	}
	s.About(s.Pods.Reference(machine))
	s.Detail("disk " + cid)
	strategy := s.strategyOf(machine)
	if machine, err = strategy.placed(machine); err != nil {
		return hint, err
	}
	claim, err := s.disks().Claim(cid)
	if err != nil {
		return hint, err
	}
	if err := s.attachable(claim, machine, attachments); err != nil {
		return hint, err
	}
	if err := s.disks().SettleCopy(claim); err != nil {
		return hint, err
	}
	attachment, mine, err := s.bringAttached(claim, machine)
	if err != nil {
		return hint, err
	}
	return hint, strategy.give(claim, machine, attachment, mine)
}

// attachable refuses a machine that does not run, and a disk that it cannot have, beside those that it has,
// or that another has.
func (s *Session) attachable(claim *corev1.PersistentVolumeClaim, machine *corev1.Pod, attachments []*corev1.Pod) error {
	switch {
	case machine.DeletionTimestamp != nil:
		return call.NoVM(machine.Name)
	case kube.Finished(machine), machine.Spec.NodeName == "":
		return call.CloudError.Errorf("VM %s does not run (its Pod is %s): no disk can be attached to it", machine.Name, machine.Status.Phase)
	}
	if err := s.OnNode(machine); err != nil {
		return err
	}
	if err := s.strategyOf(machine).accept(claim, machine); err != nil {
		return err
	}
	if err := migratable(claim, machine, attachments); err != nil {
		return err
	}
	return s.disks().FreeFor(claim, machine.Name)
}

// migratable refuses a second disk where one of the two is a directory: the director attaches two to
// move the data from one to the other, and the agent fails at that only after it has begun.
func migratable(claim *corev1.PersistentVolumeClaim, machine *corev1.Pod, attachments []*corev1.Pod) error {
	for _, other := range attachments {
		disk := other.Labels[manifest.LabelDisk]
		if disk != claim.Name && (manifest.IsDirectory(claim) || manifest.IsDirectory(other)) {
			return call.NotSupported.Errorf("disk %s cannot be attached to VM %s beside disk %s: one of them has attach: bind, "+
				"and the agent cannot migrate data from or to such a disk. Let the CPI do it (director.enable_cpi_update_disk)",
				claim.Name, machine.Name, disk)
		}
	}
	return nil
}

// bringAttached attaches the disk, and leaves nothing behind when that fails. mine tells that it was not
// attached before.
func (s *Session) bringAttached(claim *corev1.PersistentVolumeClaim, machine *corev1.Pod) (attachment *corev1.Pod, mine bool, err error) {
	attachment, mine, err = s.bringAttachment(claim, machine)
	if err != nil {
		return nil, false, err
	}
	if mine {
		claim, err = s.disks().Assign(claim, machine.Name)
	}
	if err == nil && attachment.DeletionTimestamp == nil {
		depends := append(s.NodeFails(machine.Spec.NodeName), s.disks().ProvisioningFails(claim)...)
		err = s.awaitAttachment(attachment, append(depends, s.findsRoom(attachment)))
	}
	if err == nil {
		err = s.disks().Use(claim, machine.Name)
	}
	if err != nil && mine {
		err = errors.Join(err, s.undoAttachment(attachment))
	}
	return attachment, mine, err
}

// bringAttachment makes the attachment, or returns the one that is there already for the same VM.
// mine tells that this call made it.
func (s *Session) bringAttachment(claim *corev1.PersistentVolumeClaim, machine *corev1.Pod) (attachment *corev1.Pod, mine bool, err error) {
	wanted, err := s.attachmentOf(claim, machine)
	if err != nil {
		return nil, false, err
	}
	return s.BringHelper(wanted.Pod(), func(left *corev1.Pod) (bool, error) {
		switch {
		case left.DeletionTimestamp != nil && left.Labels[manifest.LabelVM] == machine.Name && !released(left):
			return s.stillHolds(left)
		case left.DeletionTimestamp != nil:
			err := s.AwaitGone(left)
			return false, s.ExplainTimeout(left, err, fmt.Sprintf("disk %s stays with VM %s, which it is being detached from, "+
				"until nothing there uses it", left.Labels[manifest.LabelDisk], left.Labels[manifest.LabelVM]))
		case disk.IsCopy(left):
			return false, disk.CopyingError(left)
		case left.Labels[manifest.LabelVM] != machine.Name:
			return false, disk.AttachedError(left)
		case releasing(left) && !kube.Finished(left):
			// A detach_disk is, or was, at it: what its proof finds decides.
			err := s.awaitProof(left)
			if errors.Is(err, call.ErrLost) {
				return true, nil
			}
			return false, err
		case released(left) || kube.Finished(left):
			// A detach_disk that was cut short, or an eviction: finish the former before a new one.
			return false, s.End(left)
		}
		return true, nil
	})
}

// leavePatience is how long an attachment that was told to end may take when its device is free.
const leavePatience = 10 * time.Second

// stillHolds reports that somebody has told the attachment to end, but that the machine uses the disk: the attachment
// stays until that is over, and there can be no other. One whose device is free leaves soon.
func (s *Session) stillHolds(attachment *corev1.Pod) (bool, error) {
	waiting, cancel := s.within(leavePatience)
	defer cancel()
	err := waiting.AwaitGone(attachment)
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
		return false, s.AwaitGone(now)
	}
	s.warnOfEnd(now)
	return true, nil
}

func (s *Session) warnOfEnd(attachment *corev1.Pod) {
	s.Log.Warn("somebody has told the attachment of a disk to end: it stays until the disk is free",
		"disk", attachment.Labels[manifest.LabelDisk], "vm", attachment.Labels[manifest.LabelVM])
}

// attachmentOf reads from the claim what create_disk wrote there.
func (s *Session) attachmentOf(claim *corev1.PersistentVolumeClaim, machine *corev1.Pod) (manifest.Attachment, error) {
	size, err := disk.SizeOf(claim)
	if err != nil {
		return manifest.Attachment{}, err
	}
	return manifest.Attachment{
		Disk: claim.Name, SizeMiB: size, Mode: manifest.VolumeMode(claim), Bind: manifest.IsDirectory(claim), VM: machine, Director: s.Director,
		Filesystem: claim.Annotations[manifest.AnnotationFilesystem], Formatted: manifest.Formatted(claim), Reserve: manifest.IsReserved(claim),
		PriorityClass: s.Disk.AttachmentPriorityClass,
	}, nil
}

// awaitAttachment waits until the device is there, unless one of what that depends on fails.
func (s *Session) awaitAttachment(attachment *corev1.Pod, depends []call.Sentinel) error {
	cid, vm := attachment.Labels[manifest.LabelDisk], attachment.Labels[manifest.LabelVM]
	var outlook kube.Outlook
	err := s.Follow(depends, attachment, func(now *corev1.Pod) (bool, error) {
		if now == nil || now.DeletionTimestamp != nil {
			return false, call.CloudError.Errorf("disk %s was detached while it was being attached", cid)
		}
		if kube.Ready(attachment) {
			return true, nil
		}
		if failed := failure(attachment); failed != "" {
			return false, call.CloudError.Errorf("disk %s cannot be attached: %s", cid, failed)
		}
		if reason := kube.VolumeOutOfReach(attachment); reason != "" {
			return false, call.CloudError.Errorf("disk %s cannot be attached to VM %s: "+
				"its volume cannot be reached from the VM's node: %s", cid, vm, reason)
		}
		if outlook.Hopeless(attachment) {
			return false, call.CloudError.Errorf("disk %s cannot be attached: %s", cid, s.Reported(attachment))
		}
		return false, nil
	})
	return s.ExplainTimeout(attachment, err, "disk "+cid+" did not appear in VM "+vm)
}

// failure returns what the attachment's own script gave as its reason to fail, unless it is trying again.
func failure(attachment *corev1.Pod) string {
	status := manifest.OwnStatus(attachment)
	if status.State.Running != nil {
		return ""
	}
	for _, ended := range []*corev1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
		if ended != nil && ended.ExitCode == 1 {
			return strings.TrimSpace(ended.Message)
		}
	}
	return ""
}

// undoAttachment removes what a failed attach_disk made. On a node that does not answer it stays behind,
// to be removed with its VM: the call's error says so already.
func (s *Session) undoAttachment(attachment *corev1.Pod) error {
	undo, cancel := s.detached()
	defer cancel()
	err := undo.End(attachment)
	if errors.Is(err, call.ErrNodeSilent) {
		return nil
	}
	if err != nil {
		return err
	}
	return undo.disks().Free(attachment.Labels[manifest.LabelDisk])
}
