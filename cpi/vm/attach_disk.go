package vm

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/stemcell"
)

// DiskHint is the result of attach_disk: the path of the device in the VM, for the agent.
type DiskHint struct {
	Path string `json:"path"`
}

// Attach attaches the disk to the running VM, and returns its path there. It has no effect if the disk is already attached to this
// VM, and fails if it is attached to another VM.
func (s *Session) Attach(vmCID, diskCID string) (DiskHint, error) {
	return s.attach(vmCID, diskCID, false)
}

// attach is like Attach. With again, it returns DiskNotAttached if the VM does not have the disk, for example because a concurrent
// detach_disk detached it.
func (s *Session) attach(vmCID, diskCID string, again bool) (DiskHint, error) {
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
	attachment, owned, err := s.attachAndWait(pvc, vmPod, again)
	if err != nil || !vmPod.HasRecreateStrategy() { // else the VM Pod does not have the disk yet
		return hint, err
	}
	return hint, recreateStrategy{s: s}.publishDisk(pvc, vmPod, attachment, owned)
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
// adopted one that was not ready. For again see attach.
func (s *Session) attachAndWait(pvc manifest.DiskPVC, vmPod manifest.VMPod, again bool) (
	attachment manifest.AttachmentPod, owned bool, err error) {

	attachment, owned, err = s.tryAttach(pvc, vmPod, again)
	if !errors.Is(err, errAttachmentFinished) {
		return attachment, owned, err
	}
	s.Log.Warn("the attachment Pod finished before it was ready; creating it again", "disk", pvc.Name, "error", err)
	if pvc, err = s.diskSession().GetPVC(pvc.Name); err != nil {
		return attachment, false, err
	}
	return s.tryAttach(pvc, vmPod, again)
}

// tryAttach is one attempt of attachAndWait.
func (s *Session) tryAttach(pvc manifest.DiskPVC, vmPod manifest.VMPod, again bool) (
	attachment manifest.AttachmentPod, owned bool, err error) {

	if owner, _ := pvc.Owner(); again && owner.VM != vmPod.Name {
		return attachment, false, notAttachedError(pvc.Name, vmPod.Name)
	}
	pvc, attachment, owned, err = s.ensureAttachment(pvc, vmPod)
	if attachment.Pod == nil {
		return attachment, false, err
	}
	if err == nil && disk.StateOf(attachment) != disk.AttachmentWaiting { // else the VM uses the disk
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
// start. If a step after the creation fails, or the call ends during the creation, ensureAttachment returns the Pod together with the
// error.
func (s *Session) ensureAttachment(pvc manifest.DiskPVC, vmPod manifest.VMPod) (
	current manifest.DiskPVC, attachment manifest.AttachmentPod, owned bool, err error) {

	desired, err := s.buildAttachment(pvc, vmPod)
	if err != nil {
		return pvc, attachment, false, err
	}
	pod := desired.Pod().Pod
	if err := s.PrepareHelperPod(pod); err != nil {
		return pvc, attachment, false, err
	}
	existing := existingAttachment{session: s, vmPod: vmPod}
	pod, outcome, err := call.EnsureOwned(s.Call, s.Pods, pod, existing.decide, existing.clear)
	attachment = manifest.AttachmentPod{Pod: pod}
	if err != nil {
		return pvc, attachment, outcome == call.Created, err
	}
	owned = outcome == call.Created || !disk.StateOf(attachment).HasPublished()
	validate := func(current manifest.DiskPVC) error {
		if owner, _ := current.Owner(); (owner.VM == vmPod.Name) != attachment.IsReattached() { // changed since the PVC was read
			return call.CodeDiskBusy.Errorf("cannot attach disk %s: a concurrent call attached or detached it; retry", current.Name)
		}
		return s.diskSession().CheckFreeFor(current, vmPod.Name)
	}
	pvc, attachment, err = s.diskSession().AssignAndStart(pvc, attachment, validate)
	return pvc, attachment, owned, err
}

// existingAttachment is the Pod that already has the name of the attachment Pod.
type existingAttachment struct {
	session *Session
	vmPod   manifest.VMPod
	stays   types.UID // of a Pod that stays although another client deleted it, or that a check left as it was
}

// decide returns whether the Pod attaches the disk to this VM. A Pod with which an attach_disk may have succeeded is shared.
func (e *existingAttachment) decide(existing *corev1.Pod) call.Decision {
	attachment := manifest.AttachmentPod{Pod: existing}
	state := disk.StateOf(attachment)
	if existing.UID != e.stays {
		switch {
		case attachment.VM() != e.vmPod.Name, state.IsDeleted(), state.IsFinished(), state.IsChecking(), state == disk.AttachmentChecked:
			return call.Replace
		case state == disk.AttachmentPublished && disk.LostCheck(attachment):
			return call.Replace // unless another check finds the disk in use
		}
	}
	if mayHaveSucceeded(attachment, state) {
		return call.Share
	}
	return call.Adopt
}

// clear waits until a Pod that does not attach the disk to this VM is gone, and deletes it if no VM uses the disk with it. It fails if the
// Pod attaches the disk to another VM. It does not release a disk that the VM has, because the new Pod was built for the owner on the PVC
// (IsReattached).
func (e *existingAttachment) clear(existing *corev1.Pod) error {
	s, attachment := e.session, manifest.AttachmentPod{Pod: existing}
	own := attachment.VM() == e.vmPod.Name
	switch state := disk.StateOf(attachment); {
	case state.IsReleased(), state == disk.AttachmentExited:
		return s.diskSession().ExplainRemoval(attachment, s.WaitForDeletion(existing))
	case state.IsFinished():
		// The Pod must be gone before a new one is created. That of another VM does not own the disk: CheckFreeFor found that out.
		return s.DeletePodAndWait(existing)
	case state.IsDeleted() && own:
		return e.waitWhileInUse(attachment)
	case state.IsDeleted():
		message := fmt.Sprintf("disk %s is being detached, but is still in use in VM %s; stop the processes that use it there",
			attachment.Disk(), attachment.VM())
		return s.ExplainTimeout(call.CodeDiskBusy, existing, s.WaitForDeletion(existing), message)
	case !own:
		return s.diskSession().DeleteSuperseded(attachment)
	case state.IsChecking():
		// A detach_disk, perhaps an interrupted one, started the exclusivity check. Its result decides.
		err := s.waitForExclusivityCheck(attachment)
		if errors.Is(err, call.ErrResultLost) {
			e.stays, err = existing.UID, nil
		}
		return err
	case state == disk.AttachmentPublished:
		return e.checkAgain(attachment)
	}
	return s.DeletePodAndWait(existing) // an interrupted detach_disk left it after a check that passed
}

// checkAgain runs another exclusivity check after one without a result. If it has none either, the Pod stays.
func (e *existingAttachment) checkAgain(attachment manifest.AttachmentPod) error {
	e.stays = attachment.UID
	if len(attachment.Spec.EphemeralContainers) >= maxExclusivityChecks {
		return nil
	}
	_, err := hotPlugStrategy{e.session}.startExclusivityCheck(attachment)
	if errors.Is(err, kube.ErrNotFound) || errors.Is(err, kube.ErrConflict) { // another client deleted it
		return nil
	}
	if err == nil {
		err = e.session.waitForExclusivityCheck(attachment)
	}
	if errors.Is(err, call.ErrResultLost) {
		return nil
	}
	if !disk.LostCheck(attachment) {
		e.stays = ""
	}
	return err
}

// attachmentExitTimeout is the time within which a deleted attachment Pod exits if its device is free, also on a slow node.
const attachmentExitTimeout = 30 * time.Second

// waitWhileInUse waits for the end of an attachment Pod that is being deleted by another client. The Pod stays if the VM uses the disk;
// while it stays, no other attachment Pod can be created. If the device is free, the Pod exits within attachmentExitTimeout.
func (e *existingAttachment) waitWhileInUse(attachment manifest.AttachmentPod) error {
	s := e.session
	bounded, cancel := s.WithTimeout(attachmentExitTimeout)
	defer cancel()
	err := bounded.WaitForDeletion(attachment.Pod)
	if !errors.Is(err, kube.ErrTimeout) || s.Ctx.Err() != nil {
		return err
	}
	current, err := s.diskSession().GetAttachment(attachment.Disk())
	switch {
	case errors.Is(err, kube.ErrNotFound) || err == nil && current.UID != attachment.UID:
		return nil
	case err != nil:
		return err
	case disk.StateOf(current) != disk.AttachmentWaiting:
		return s.WaitForDeletion(current.Pod)
	}
	s.warnAttachmentTerminating(current)
	e.stays = current.UID
	return nil
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
	if ofVM := manifest.NodeImage(vmPod.Pod); errors.Is(err, stemcell.ErrNoNodeImage) && ofVM != "" {
		nodeImage, err = ofVM, nil // `kubectl bosh collect` has no image of its own
	}
	if err != nil {
		return manifest.Attachment{}, err
	}
	owner, _ := pvc.Owner()
	return manifest.Attachment{
		Disk:          pvc.Name,
		SizeMiB:       size,
		Filesystem:    pvc.FilesystemFor(vmPod),
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
		switch state := disk.StateOf(manifest.AttachmentPod{Pod: current}); {
		case state == disk.AttachmentPublished, state == disk.AttachmentChecking:
			return true, nil
		case state == disk.AttachmentFailed:
			return false, call.CodeDiskAttachFailed.Errorf("cannot attach disk %s: %s", diskCID, disk.AttachmentFailure(attachment))
		case state.IsFinished():
			return false, call.CodeDiskAttachFailed.Errorf("cannot attach disk %s to VM %s: %w on node %s: %s",
				diskCID, vmCID, errAttachmentFinished, attachment.Spec.NodeName, s.DiagnosePod(attachment.Pod))
		case state.IsDeleted(), state == disk.AttachmentChecked, state == disk.AttachmentAbsent:
			return false, call.CodeDiskBusy.Errorf("cannot attach disk %s: it was detached by a concurrent call; retry", diskCID)
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

// mayHaveSucceeded reports whether an attach_disk may have succeeded with an attachment Pod in this state. A VM with
// disk_strategy: recreate gets the disk later. A failed call must not delete such a Pod.
func mayHaveSucceeded(attachment manifest.AttachmentPod, state disk.AttachmentState) bool {
	return state.HasPublished() && !attachment.HasRecreateStrategy()
}

// mayBeUnguarded reports whether the VM may use the disk, and no process in the attachment Pod waits until it does not: the Pod may have
// published the disk before its program was killed.
func mayBeUnguarded(attachment manifest.AttachmentPod, state disk.AttachmentState) bool {
	failedFirst := state == disk.AttachmentFailed && manifest.OwnContainerStatus(attachment.Pod).RestartCount == 0
	return !state.IsGuarded() && !failedFirst && !attachment.HasRecreateStrategy()
}

// rollbackAttachment deletes the attachment Pod of a failed attach_disk and releases the disk, unless another call adopted the Pod,
// or may have succeeded with it for a VM that still runs: also if another client deleted the Pod since. It does not release a disk that the
// VM already had, because the VM may still use it. On a lost node the Pod remains until the VM is deleted; the error of the call reports
// the node.
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
	deletion, err := cleanup.DeletePodIfOwned(attachment.Pod, func(current *corev1.Pod) bool {
		existing := manifest.AttachmentPod{Pod: current}
		state := disk.StateOf(existing)
		unguarded = !vmFinished && mayBeUnguarded(existing, state)
		return unguarded || !vmFinished && (mayHaveSucceeded(existing, state) || state.IsDeleted())
	})
	if unguarded && err == nil && deletion == call.Kept {
		s.Log.Warn("keeping the attachment Pod of the failed call: its container was killed, and the VM may use the disk",
			"disk", attachment.Disk(), "vm", attachment.VM())
	}
	if errors.Is(err, call.ErrNodeUnreachable) {
		return nil
	}
	if deletion == call.Kept || err != nil || !vmFinished && (deletion == call.Gone || attachment.IsReattached()) {
		return err
	}
	_, err = cleanup.diskSession().ReleaseCanceled(attachment.Disk(), attachment.OwnerRecord()) // also if the request for it is delayed
	return err
}
