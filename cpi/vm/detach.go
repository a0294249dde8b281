package vm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Detach proves that nothing in the machine uses the disk, and only then removes its attachment. A disk that
// is not attached to the VM is DiskNotAttached.
func (s *Session) Detach(vmCID, diskCID string) error {
	attachment, err := s.Pods.Get(s.Ctx, manifest.AttachmentName(diskCID))
	if errors.Is(err, kube.ErrNotFound) || (err == nil && attachment.Labels[manifest.LabelVM] != vmCID) {
		attachment, err = s.recoverLostAttachment(vmCID, diskCID)
	}
	if err != nil {
		return err
	}
	s.SetSubject(call.OwnerOf(attachment))
	s.SetDetail("disk " + diskCID)
	return s.strategyForPod(attachment).detachDisk(vmCID, attachment)
}

// recoverLostAttachment returns the attachment, made again, that was taken away from a disk that the machine uses. Any other
// disk is not attached to this VM, or it or the VM does not exist.
func (s *Session) recoverLostAttachment(vmCID, diskCID string) (*corev1.Pod, error) {
	pvc, err := s.diskSession().GetPVC(diskCID)
	if err != nil {
		return nil, err
	}
	owner, err := s.diskSession().OwningVM(pvc)
	if err != nil {
		return nil, err
	}
	if owner == vmCID {
		return s.restoreAndGetAttachment(vmCID, diskCID)
	}
	exists, err := s.Has(vmCID)
	if err != nil {
		return nil, err
	}
	if !exists {
		return nil, call.NoVM(vmCID)
	}
	return nil, notAttachedError(diskCID, vmCID)
}

func notAttachedError(diskCID, vmCID string) error {
	return call.DiskNotAttached.Errorf("disk %s is not attached to VM %s", diskCID, vmCID)
}

// restoreAndGetAttachment is the disk's attachment after it was brought back.
func (s *Session) restoreAndGetAttachment(vmCID, diskCID string) (*corev1.Pod, error) {
	restore := recreateStrategy{s}.restoreAttachment
	vmPod, err := s.Pods.Get(s.Ctx, vmCID)
	switch {
	case err == nil:
		restore = s.strategyForPod(vmPod).restoreAttachment
	case !errors.Is(err, kube.ErrNotFound): // else only a machine that is made again can be there
		return nil, err
	}
	if err := restore(vmCID, diskCID); err != nil {
		return nil, err
	}
	return s.Pods.Get(s.Ctx, manifest.AttachmentName(diskCID))
}

// detachDisk proves the disk free, and ends its attachment.
//
// The proof is a container in the attachment's Pod that opens the device as a mount would: with
// O_EXCL, which fails as long as any filesystem in any mount namespace is on it. In the same moment it
// takes the device's node away, so that nothing can mount it any more. An attachment that ends without a proof, as
// by eviction, is made again: only one that runs can tell.
func (p hotPlugStrategy) detachDisk(vmCID string, attachment *corev1.Pod) error {
	diskCID := attachment.Labels[manifest.LabelDisk]
	for {
		free, err := p.deleteWhenFree(attachment)
		if err == nil && !free {
			if free, err = p.vmFinished(vmCID); free {
				err = p.deleteReleasedAttachment(attachment)
			}
		}
		switch {
		case errors.Is(err, call.ErrResultLost):
			continue
		case err != nil || free:
			return err
		}
		attachment, err = p.recoverLostAttachment(vmCID, diskCID)
		if call.DiskNotAttached.Is(err) { // another detach_disk has proven it free meanwhile, and ended the attachment
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// deleteReleasedAttachment ends the attachment of a VM that uses nothing any more.
func (p hotPlugStrategy) deleteReleasedAttachment(attachment *corev1.Pod) error {
	if err := p.DeletePodAndWait(attachment); err != nil {
		return err
	}
	_, err := p.diskSession().Release(attachment.Labels[manifest.LabelDisk], ownerRecord(attachment))
	return err
}

// vmFinished reports that the machine uses nothing, because it has ended.
func (p hotPlugStrategy) vmFinished(vmCID string) (bool, error) {
	vmPod, err := p.Pods.Get(p.Ctx, vmCID)
	if errors.Is(err, kube.ErrNotFound) {
		return true, nil
	}
	return err == nil && kube.Finished(vmPod), err
}

// maxExclusivityChecks is how often a disk in use is proven to be: each proof stays in the attachment's Pod with its program, and
// etcd takes no more than 1.5 MiB. The next detach_disk has the attachment leave as soon as the disk is free.
const maxExclusivityChecks = 40

// deleteWhenFree ends the attachment once the disk is free, which it notes, and reports whether that is so. It keeps the Pod
// up to date.
func (p hotPlugStrategy) deleteWhenFree(attachment *corev1.Pod) (free bool, err error) {
	if kube.Finished(attachment) {
		return false, nil
	}
	outOfService, err := p.PodNodeOutOfService(attachment)
	if err != nil {
		return false, err
	}
	if outOfService || !kube.HasRun(manifest.OwnContainerStatus(attachment)) {
		return p.waitForRelease(attachment, "")
	}
	if attachment.DeletionTimestamp != nil {
		return p.waitForExit(attachment, false)
	}
	if len(attachment.Spec.EphemeralContainers) >= maxExclusivityChecks {
		return p.deleteAndWaitForExit(attachment, false)
	}
	containerName, err := p.startExclusivityCheck(attachment)
	if errors.Is(err, kube.ErrNotFound) || errors.Is(err, kube.ErrConflict) {
		return false, nil // somebody else has ended it meanwhile
	}
	if err != nil {
		return false, err
	}
	return p.waitForRelease(attachment, containerName)
}

// startExclusivityCheck adds the container that proves the device free to the attachment's Pod, and returns its name.
func (p hotPlugStrategy) startExclusivityCheck(attachment *corev1.Pod) (string, error) {
	container := manifest.ReleaseContainer(attachment)
	patch, err := manifest.AddReleaseContainer(attachment, container)
	if err != nil {
		return "", err
	}
	now, err := p.Pods.Patch(p.Ctx, attachment.Name, patch, "ephemeralcontainers")
	if err != nil {
		return "", err
	}
	*attachment = *now
	return container.Name, nil
}

// waitForRelease deletes the attachment once the container named proof has found its device free, on one
// and the same watch, and waits until it is gone. There is no proof to wait for when the attachment's
// container never ran, so that it has no device, or when its node is off. One that was gone before is not free.
//
// A proof whose image cannot be had, as where each start of a container asks the registry (AlwaysPullImages), is given
// up: the attachment is deleted, and proves the disk free by leaving.
func (p hotPlugStrategy) waitForRelease(attachment *corev1.Pod, containerName string) (free bool, err error) {
	pullFailed, deleteRequested, reattached := false, false, false
	dependencies := p.WatchNode(attachment.Spec.NodeName)
	if containerName != "" {
		dependencies = append(dependencies, p.WatchContainerStart(attachment.Name, containerName))
	}
	err = p.WaitForPod(dependencies, attachment, func(now *corev1.Pod) (bool, error) {
		if now == nil || deleteRequested {
			return now == nil, nil
		}
		if pullFailed = kube.EphemeralImagePullFailed(attachment, containerName); pullFailed {
			return true, nil
		}
		if passed, err := evaluateExclusivityCheck(attachment, containerName); !passed || err != nil {
			return false, err
		}
		deleteRequested = true
		if reattached, err = p.releaseDisk(attachment); err != nil {
			return false, err
		}
		return false, p.Pods.Delete(p.Ctx, attachment)
	})
	notExposed := errors.Is(err, errDiskNotExposed) && attachmentFailure(attachment) != ""
	if pullFailed && err == nil || notExposed {
		return p.deleteAndWaitForExit(attachment, notExposed)
	}
	return deleteRequested && !reattached, p.explainRelease(attachment, err)
}

// releaseDisk releases the disk, which is proven to be free. again reports that the VM has it once more, by another attachment.
func (p hotPlugStrategy) releaseDisk(attachment *corev1.Pod) (reattached bool, err error) {
	owner := ownerRecord(attachment)
	now, err := p.diskSession().Release(attachment.Labels[manifest.LabelDisk], owner)
	return now.VM == owner.VM && now.Pod != owner.Pod, err
}

// deleteAndWaitForExit has the attachment end when its device is free. unheld: see awaitLeave.
func (p hotPlugStrategy) deleteAndWaitForExit(attachment *corev1.Pod, notExposed bool) (freed bool, err error) {
	if err := p.Pods.Delete(p.Ctx, attachment); err != nil {
		return false, err
	}
	return p.waitForExit(attachment, notExposed)
}

// waitForExit waits for an attachment that was told to end, and leaves by itself when its device is free: it reports
// whether it did, or was killed. One that was unheld, since it failed before the VM could see the disk, leaves so too when it has failed
// again, or was not started any more.
func (p hotPlugStrategy) waitForExit(attachment *corev1.Pod, notExposed bool) (freed bool, err error) {
	err = p.WaitForPod(p.WatchNode(attachment.Spec.NodeName), attachment, func(now *corev1.Pod) (bool, error) {
		terminated := manifest.OwnContainerStatus(attachment).State.Terminated
		freed = terminated != nil &&
			(terminated.ExitCode == 0 || notExposed && terminated.ExitCode == 1) // its device is free then, and only then
		return now == nil, nil
	})
	if freed && err == nil {
		var reattached bool
		reattached, err = p.releaseDisk(attachment)
		freed = !reattached
	}
	return freed, p.explainRelease(attachment, err)
}

func (p hotPlugStrategy) explainRelease(attachment *corev1.Pod, err error) error {
	return p.ExplainTimeout(attachment, err,
		"disk "+attachment.Labels[manifest.LabelDisk]+" was not released on node "+attachment.Spec.NodeName)
}

// errDiskNotExposed means that a proof has found nothing, and that the attachment does not hold its disk: it starts, or fails.
var errDiskNotExposed = errors.New("the attachment does not hold the disk")

// evaluateExclusivityCheck reports that the container named proof has found the device free; without one there is nothing to
// wait for. When it found the device in use, the error says by whom. One that did not end by itself found nothing: ErrLost.
func evaluateExclusivityCheck(attachment *corev1.Pod, containerName string) (bool, error) {
	if containerName == "" {
		return true, nil
	}
	terminated := kube.EphemeralTermination(attachment, containerName)
	if terminated == nil {
		return false, nil
	}
	switch {
	case terminated.ExitCode == 0:
		return true, nil
	case terminated.ExitCode == manifest.ExitNotPublished:
		return false, fmt.Errorf("%w: %w", errDiskNotExposed, call.ErrResultLost)
	case kube.Aborted(terminated):
		return false, call.CloudError.Errorf("container %s of Pod %s did not end by itself: %s: %w", containerName, attachment.Name,
			cmp.Or(strings.TrimSpace(terminated.Message), terminated.Reason), call.ErrResultLost)
	default:
		return false, call.InUse(call.CloudError.Errorf("disk %s is still in use in VM %s, nothing was detached: %s",
			attachment.Labels[manifest.LabelDisk], attachment.Labels[manifest.LabelVM], strings.TrimSpace(terminated.Message)))
	}
}

// waitForExclusivityCheck waits until the containers that prove the device free have all ended.
func (s *Session) waitForExclusivityCheck(attachment *corev1.Pod) error {
	dependencies := append(
		s.WatchNode(attachment.Spec.NodeName),
		s.WatchContainerStart(attachment.Name, manifest.LastReleaseContainer(attachment)),
	)
	return s.WaitForPod(dependencies, attachment, func(now *corev1.Pod) (bool, error) {
		return now == nil || now.DeletionTimestamp != nil || !exclusivityCheckRunning(now), nil
	})
}

// exclusivityCheckRunning reports that the last container to prove the device free has not ended.
func exclusivityCheckRunning(attachment *corev1.Pod) bool {
	last := manifest.LastReleaseContainer(attachment)
	return last != "" && kube.EphemeralTermination(attachment, last) == nil
}

// exclusivityCheckPassed reports that a detach_disk has proven the device free and taken its node away.
func exclusivityCheckPassed(attachment *corev1.Pod) bool {
	return slices.ContainsFunc(attachment.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool {
		return manifest.IsReleaseContainer(s.Name) && s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	})
}
