package vm

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Detach detaches the disk from the VM. If the disk is not attached to this VM, Detach returns DiskNotAttached.
func (s *Session) Detach(vmCID, diskCID string) error {
	attachment, err := s.diskSession().GetAttachment(diskCID)
	if errors.Is(err, kube.ErrNotFound) || (err == nil && attachment.VM() != vmCID) {
		attachment, err = s.restoreLostAttachment(vmCID, diskCID)
	}
	if err != nil {
		return err
	}
	if disk.StateOf(attachment).IsReleased() { // by an earlier detach_disk
		pvc, err := s.diskSession().GetPVC(diskCID)
		if err != nil {
			return err
		}
		if owner, valid := pvc.Owner(); valid && owner.VM != vmCID {
			return notAttachedError(diskCID, vmCID)
		}
	} else if err := s.diskSession().CheckNotBeingDeleted(diskCID); err != nil {
		return err
	}
	s.SetSubject(attachment.OwnerReference())
	s.SetDetail("disk " + diskCID)
	return s.strategy(attachment.HasRecreateStrategy()).detachDisk(vmCID, attachment)
}

// restoreLostAttachment recreates and returns the attachment Pod of a disk that the VM uses, after another client deleted the Pod. It
// fails if the disk is not attached to this VM, or if the disk or the VM does not exist.
func (s *Session) restoreLostAttachment(vmCID, diskCID string) (manifest.AttachmentPod, error) {
	pvc, err := s.diskSession().GetPVC(diskCID)
	if err != nil {
		return manifest.AttachmentPod{}, err
	}
	owner, err := s.diskSession().OwningVM(pvc)
	if err != nil {
		return manifest.AttachmentPod{}, err
	}
	if owner == vmCID {
		return s.restoreAndGetAttachment(vmCID, diskCID)
	}
	exists, err := s.Has(vmCID)
	if err != nil {
		return manifest.AttachmentPod{}, err
	}
	if !exists {
		return manifest.AttachmentPod{}, call.VMNotFoundError(vmCID)
	}
	return manifest.AttachmentPod{}, notAttachedError(diskCID, vmCID)
}

func notAttachedError(diskCID, vmCID string) error {
	return call.CodeDiskNotAttached.Errorf("disk %s is not attached to VM %s", diskCID, vmCID)
}

// restoreAndGetAttachment recreates the disk's attachment Pod, and returns it.
func (s *Session) restoreAndGetAttachment(vmCID, diskCID string) (manifest.AttachmentPod, error) {
	pod, err := s.Pods.Get(s.Ctx, vmCID)
	switch {
	case err == nil && !manifest.VMPod{Pod: pod}.HasRecreateStrategy():
		return s.attachAgain(vmCID, diskCID)
	case err == nil, errors.Is(err, kube.ErrNotFound): // without a Pod, only a VM with disk_strategy: recreate can exist
		err = s.recreateMissingPod(vmCID) // and all missing attachment Pods
	}
	if err != nil {
		return manifest.AttachmentPod{}, err
	}
	return s.diskSession().GetAttachment(diskCID)
}

// attachAgain attaches a disk that the VM has, and returns its attachment Pod. It fails with DiskNotAttached if the VM no longer has it.
func (s *Session) attachAgain(vmCID, diskCID string) (manifest.AttachmentPod, error) {
	for {
		if _, err := s.attach(vmCID, diskCID, true); err != nil {
			pvc, getErr := s.diskSession().GetPVC(diskCID)
			if owner, _ := pvc.Owner(); getErr == nil && owner.VM != vmCID { // a concurrent call detached it in the meantime
				err = notAttachedError(diskCID, vmCID)
			}
			return manifest.AttachmentPod{}, err
		}
		attachment, err := s.diskSession().GetAttachment(diskCID)
		switch {
		case errors.Is(err, kube.ErrNotFound): // deleted since: decide again
		case err == nil && attachment.VM() != vmCID:
			return attachment, notAttachedError(diskCID, vmCID)
		default:
			return attachment, err
		}
	}
}

// detachDisk runs the exclusivity check, and deletes the attachment Pod if nothing uses the disk.
//
// For the exclusivity check see manifest.ExclusivityCheckContainer. If the attachment Pod ends without a check, for example by eviction,
// detachDisk recreates it, because only a running Pod can check the device.
func (p hotPlugStrategy) detachDisk(vmCID string, attachment manifest.AttachmentPod) error {
	diskCID := attachment.Disk()
	for {
		free, err := p.deleteWhenFree(attachment)
		if err == nil && !free {
			if free, err = p.vmFinished(vmCID); free {
				err = p.s.deleteAndRelease(attachment)
			}
		}
		switch {
		case errors.Is(err, call.ErrResultLost):
			continue
		case err != nil || free:
			return err
		}
		attachment, err = p.s.restoreLostAttachment(vmCID, diskCID)
		if call.DiskNotAttached.Is(err) { // detached by a concurrent detach_disk
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// deleteAndRelease deletes the attachment Pod of a disk that no VM uses, and releases the disk.
func (s *Session) deleteAndRelease(attachment manifest.AttachmentPod) error {
	if err := s.DeletePodAndWait(attachment.Pod); err != nil {
		return err
	}
	_, err := s.diskSession().Release(attachment.Disk(), attachment.OwnerRecord())
	return err
}

// vmFinished reports whether the VM Pod is finished or gone, so that the VM does not use its disks.
func (p hotPlugStrategy) vmFinished(vmCID string) (bool, error) {
	vmPod, err := p.s.Pods.Get(p.s.Ctx, vmCID)
	if errors.Is(err, kube.ErrNotFound) {
		return true, nil
	}
	return err == nil && kube.IsFinished(vmPod), err
}

// deleteWhenFree deletes the attachment Pod and releases the disk, if the disk is free, and reports whether it did. It updates
// attachment to the latest state of the Pod.
func (p hotPlugStrategy) deleteWhenFree(attachment manifest.AttachmentPod) (free bool, err error) {
	state := disk.StateOf(attachment)
	if state.IsFinished() {
		return false, nil
	}
	outOfService, err := p.s.PodNodeOutOfService(attachment.Pod)
	switch {
	case err != nil:
		return false, err
	case outOfService:
		return p.waitForRelease(attachment, "")
	case state.IsDeleted():
		return p.waitForExit(attachment, false)
	case state.IsUnstarted():
		if attachment.IsReattached() {
			return false, nil // the VM may use the disk, and only a Pod that runs can check it
		}
		return p.deleteUnstarted(attachment)
	}
	if len(attachment.Spec.EphemeralContainers) >= maxExclusivityChecks {
		return p.deleteAndWaitForExit(attachment, false)
	}
	containerName, err := p.startExclusivityCheck(attachment)
	if errors.Is(err, kube.ErrNotFound) || errors.Is(err, kube.ErrConflict) {
		return false, nil // another client deleted it
	}
	if err != nil {
		return false, err
	}
	return p.waitForRelease(attachment, containerName)
}

// deleteUnstarted deletes an attachment Pod with a container that never ran, and releases the disk after the Pod is gone: no check is
// necessary, unless the container starts in the meantime. If the Pod changes first, the error is call.ErrResultLost.
func (p hotPlugStrategy) deleteUnstarted(attachment manifest.AttachmentPod) (free bool, err error) {
	deletion, err := p.s.Pods.DeleteInState(p.s.Ctx, attachment.Pod)
	switch {
	case deletion == kube.DeletedUnchanged:
		return p.waitForExit(attachment, false)
	case err != nil && !errors.Is(err, kube.ErrConflict):
		return false, err
	}
	current, err := p.s.Pods.Get(p.s.Ctx, attachment.Name)
	switch {
	case errors.Is(err, kube.ErrNotFound), err == nil && current.UID != attachment.UID:
		return false, nil
	case err != nil:
		return false, err
	}
	*attachment.Pod = *current
	return false, call.ErrResultLost
}

// waitForRelease waits until the exclusivity check in the container containerName passes, releases the disk, deletes the attachment
// Pod, and waits until its container has ended, all in one watch. It does not wait until the kubelet has removed the volume and the Pod:
// calls that require that wait for it. An empty containerName means that no check is possible, because the Pod's node is out of service.
// If another client deletes the Pod first, the disk is not known to be free, and the result is false.
//
// If the image of the container cannot be pulled, for example because the admission plugin AlwaysPullImages requires the registry for
// each start of a container, waitForRelease deletes the Pod without the check: the Pod exits when the device is free.
func (p hotPlugStrategy) waitForRelease(attachment manifest.AttachmentPod, containerName string) (free bool, err error) {
	pullFailed, deleteRequested, assignedAgain := false, false, false
	dependencies := p.s.WatchNode(attachment.Spec.NodeName)
	if containerName != "" {
		dependencies = append(dependencies, p.s.WatchContainerStart(attachment.Name, containerName))
	}
	err = p.s.WaitForPod(dependencies, attachment.Pod, func(current *corev1.Pod) (bool, error) {
		if current == nil || deleteRequested {
			return current == nil || disk.StateOf(attachment).HasExited(), nil
		}
		if pullFailed = kube.EphemeralImagePullFailed(attachment.Pod, containerName); pullFailed {
			return true, nil
		}
		if passed, err := evaluateExclusivityCheck(attachment, containerName); !passed || err != nil {
			return false, err
		}
		deleteRequested = true
		if assignedAgain, err = p.releaseDisk(attachment, p.s.diskSession().Release); err != nil {
			return false, err
		}
		return false, p.s.Pods.DeleteWithGracePeriod(p.s.Ctx, attachment.Pod, releasedGracePeriod(attachment, containerName))
	})
	notPublished := errors.Is(err, errDiskNotPublished) && disk.AttachmentFailure(attachment) != ""
	if pullFailed && err == nil || notPublished {
		return p.deleteAndWaitForExit(attachment, notPublished)
	}
	return deleteRequested && !assignedAgain, p.explainRelease(attachment, err)
}

// releasedGracePeriod returns the grace period in seconds for the attachment Pod after the exclusivity check in the container containerName
// passed. It is short if another container runs that may ignore SIGTERM, such as a shell of kubectl debug; else nil, which means the
// Pod's own of ten years. The program itself exits at once. A later deletion could not reduce the grace period: the kubelet applies that of
// the first one (kubernetes/kubernetes#83916), and until then does not report that the program exited (#106896).
func releasedGracePeriod(attachment manifest.AttachmentPod, containerName string) *int64 {
	status := attachment.Status
	containers := slices.Concat(status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses)
	own := manifest.OwnContainerName(attachment.Pod)
	isOther := func(container corev1.ContainerStatus) bool {
		return container.Name != own && container.State.Running != nil
	}
	if containerName == "" || !slices.ContainsFunc(containers, isOther) {
		return nil
	}
	return new(int64(30))
}

// releaseDisk releases the disk, which nothing uses, with this function. assignedAgain reports whether another attachment Pod attached it
// to the same VM in the meantime.
func (p hotPlugStrategy) releaseDisk(
	attachment manifest.AttachmentPod,
	release func(cid string, owner manifest.DiskOwner) (manifest.DiskOwner, error),
) (assignedAgain bool, err error) {
	owner := attachment.OwnerRecord()
	current, err := release(attachment.Disk(), owner)
	return current.VM == owner.VM && current.Pod != owner.Pod, err
}

// deleteAndWaitForExit deletes the attachment Pod, which exits when its device is free. For notPublished and the result see waitForExit.
func (p hotPlugStrategy) deleteAndWaitForExit(attachment manifest.AttachmentPod, notPublished bool) (freed bool, err error) {
	if err := p.s.Pods.Delete(p.s.Ctx, attachment.Pod); err != nil {
		return false, err
	}
	return p.waitForExit(attachment, notPublished)
}

// waitForExit waits until a deleted attachment Pod has unpublished its disk, or is gone. It releases the disk if the Pod's program never
// ran, or exited by itself, which it does only when the device is free. freed is false if the program was killed, or if another attachment
// Pod attached the disk in the meantime.
//
// notPublished reports that the program failed before the VM could use the disk. Then exit status 1 also means a free disk: the
// program failed again, or the kubelet did not restart it. If the Pod replaced a lost one, neither shows whether the VM uses the disk.
func (p hotPlugStrategy) waitForExit(attachment manifest.AttachmentPod, notPublished bool) (freed bool, err error) {
	if attachment.DeletionTimestamp == nil { // the deletion was requested, and a Pod that never ran may be gone at once
		attachment.DeletionTimestamp = new(metav1.Now())
	}
	neverRan := false
	err = p.s.WaitForPod(p.s.WatchNode(attachment.Spec.NodeName), attachment.Pod, func(current *corev1.Pod) (bool, error) {
		state := disk.StateOf(attachment)
		neverRan = state == disk.AttachmentCanceled || state == disk.AttachmentRejected
		unused := neverRan || notPublished && disk.AttachmentFailure(attachment) != ""
		freed = state.HasExited() || unused && !attachment.IsReattached()
		return current == nil || state.HasExited(), nil
	})
	if freed && err == nil {
		release := p.s.diskSession().Release
		if neverRan {
			release = p.s.diskSession().ReleaseCanceled
		}
		var assignedAgain bool
		assignedAgain, err = p.releaseDisk(attachment, release)
		freed = !assignedAgain
	}
	return freed, p.explainRelease(attachment, err)
}

func (p hotPlugStrategy) explainRelease(attachment manifest.AttachmentPod, err error) error {
	return p.s.ExplainTimeout(call.CodeDiskDetachTimeout, attachment.Pod, err,
		"timed out detaching disk "+attachment.Disk()+" on node "+attachment.Spec.NodeName)
}
