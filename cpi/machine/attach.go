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
	if claim, err = s.disks().SettleCopy(claim); err != nil {
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

// bringAttached attaches the disk, and leaves nothing behind when that fails. mine tells that this call has attached it, or
// has adopted an attachment that was not ready.
func (s *Session) bringAttached(claim *corev1.PersistentVolumeClaim, machine *corev1.Pod) (attachment *corev1.Pod, mine bool, err error) {
	claim, attachment, mine, err = s.ensureAttachment(claim, machine)
	if attachment == nil {
		return nil, false, err
	}
	if err == nil && attachment.DeletionTimestamp == nil {
		depends := append(s.NodeFails(machine.Spec.NodeName), s.disks().ProvisioningFails(claim)...)
		err = s.awaitAttachment(attachment, append(depends, s.findsRoom(attachment)))
	}
	if err == nil {
		err = s.disks().MarkFormatted(claim, machine.Name, attachment.UID)
	}
	if err != nil && mine {
		err = errors.Join(err, s.undoAttachment(attachment))
	}
	return attachment, mine, err
}

// ensureAttachment creates the attachment Pod, or adopts the one that exists for the same VM, makes it the owner of the
// disk, and lets it start. The Pod is returned as soon as there is one, with an error too.
func (s *Session) ensureAttachment(claim *corev1.PersistentVolumeClaim, machine *corev1.Pod) (
	pvc *corev1.PersistentVolumeClaim, attachment *corev1.Pod, mine bool, err error) {

	wanted, err := s.attachmentOf(claim, machine)
	if err != nil {
		return claim, nil, false, err
	}
	pod := s.PodOptions.Equip(wanted.Pod())
	attachment, created, err := call.EnsureOwned(s.Call, s.Pods, pod, func(existing *corev1.Pod) (call.Verdict, error) {
		keep, err := s.judgeAttachment(existing, machine)
		switch {
		case !keep || err != nil:
			return call.Retry, err
		case answered(existing):
			return call.Share, nil
		}
		return call.Adopt, nil
	})
	if err != nil {
		return claim, nil, false, err
	}
	mine = created || !kube.Ready(attachment)
	claim, attachment, err = s.disks().Own(claim, machine.Name, attachment, func(now *corev1.PersistentVolumeClaim) error {
		if err := s.disks().FreeFor(now, machine.Name); err != nil {
			return err
		}
		return disk.Settled(now)
	})
	return claim, attachment, mine, err
}

// judgeAttachment reports whether the Pod that has the attachment's name attaches the disk to this VM. One that is on its
// way out is waited for.
func (s *Session) judgeAttachment(existing, machine *corev1.Pod) (keep bool, err error) {
	vm := existing.Labels[manifest.LabelVM]
	switch {
	case existing.DeletionTimestamp != nil && vm == machine.Name && !released(existing):
		return s.stillHolds(existing)
	case existing.DeletionTimestamp != nil:
		err := s.AwaitGone(existing)
		return false, s.ExplainTimeout(existing, err, fmt.Sprintf("disk %s stays with VM %s, which it is being detached from, "+
			"until nothing there uses it", existing.Labels[manifest.LabelDisk], vm))
	case disk.IsCopy(existing), vm != machine.Name:
		if superseded, err := s.disks().EndSuperseded(existing); superseded || err != nil {
			return false, err
		}
		if disk.IsCopy(existing) {
			return false, disk.CopyingError(existing)
		}
		return false, disk.AttachedError(existing)
	case releasing(existing) && !kube.Finished(existing):
		// A detach_disk is, or was, at it: what its proof finds decides.
		err := s.awaitProof(existing)
		if errors.Is(err, call.ErrLost) {
			return true, nil
		}
		return false, err
	case released(existing) || kube.Finished(existing):
		// A detach_disk that was cut short, or an eviction: finish the former before a new one.
		return false, s.End(existing)
	}
	return true, nil
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

// answered reports that a call may have answered with this attachment: it is ready, and the VM has the disk with that. No call
// that fails removes it.
func answered(attachment *corev1.Pod) bool {
	return kube.Ready(attachment) && !manifest.Recreated(attachment)
}

// undoAttachment removes what a failed attach_disk made, unless another call has adopted it, or answered with it. On a node
// that does not answer it stays behind, to be removed with its VM: the call's error says so already.
func (s *Session) undoAttachment(attachment *corev1.Pod) error {
	undo, cancel := s.detached()
	defer cancel()
	gone, err := undo.EndOwn(attachment, answered)
	if errors.Is(err, call.ErrNodeSilent) {
		return nil
	}
	if !gone || err != nil {
		return err
	}
	_, err = undo.disks().Release(attachment.Labels[manifest.LabelDisk], ownerBy(attachment))
	return err
}

// ownerBy is the record of a disk that this Pod attaches.
func ownerBy(attachment *corev1.Pod) manifest.DiskOwner {
	return manifest.DiskOwner{VM: attachment.Labels[manifest.LabelVM], Pod: attachment.UID}
}
