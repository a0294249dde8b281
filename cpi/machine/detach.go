package machine

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
func (s *Session) Detach(vm, cid string) error {
	attachment, err := s.Pods.Get(s.Ctx, manifest.AttachmentName(cid))
	if errors.Is(err, kube.ErrNotFound) || (err == nil && attachment.Labels[manifest.LabelVM] != vm) {
		attachment, err = s.lostAttachment(vm, cid)
	}
	if err != nil {
		return err
	}
	s.About(call.OwnerOf(attachment))
	s.Detail("disk " + cid)
	return s.strategyOf(attachment).take(vm, attachment)
}

// lostAttachment returns the attachment, made again, that was taken away from a disk that the machine uses. Any other
// disk is not attached to this VM, or it or the VM does not exist.
func (s *Session) lostAttachment(vm, cid string) (*corev1.Pod, error) {
	claim, err := s.disks().Claim(cid)
	if err != nil {
		return nil, err
	}
	holder, err := s.disks().OwnerOf(claim)
	if err != nil {
		return nil, err
	}
	if holder == vm {
		return s.regained(vm, cid)
	}
	there, err := s.Has(vm)
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, call.NoVM(vm)
	}
	return nil, notAttached(cid, vm)
}

func notAttached(cid, vm string) error {
	return call.DiskNotAttached.Errorf("disk %s is not attached to VM %s", cid, vm)
}

// regained is the disk's attachment after it was brought back.
func (s *Session) regained(vm, cid string) (*corev1.Pod, error) {
	regain := recreate{s}.regain
	machine, err := s.Pods.Get(s.Ctx, vm)
	switch {
	case err == nil:
		regain = s.strategyOf(machine).regain
	case !errors.Is(err, kube.ErrNotFound): // else only a machine that is made again can be there
		return nil, err
	}
	if err := regain(vm, cid); err != nil {
		return nil, err
	}
	return s.Pods.Get(s.Ctx, manifest.AttachmentName(cid))
}

// take proves the disk free, and ends its attachment.
//
// The proof is a container in the attachment's Pod that opens the device as a mount would: with
// O_EXCL, which fails as long as any filesystem in any mount namespace is on it. In the same moment it
// takes the device's node away, so that nothing can mount it any more. An attachment that ends without a proof, as
// by eviction, is made again: only one that runs can tell.
func (p hotPlug) take(vm string, attachment *corev1.Pod) error {
	cid := attachment.Labels[manifest.LabelDisk]
	for {
		free, err := p.release(attachment)
		if err == nil && !free {
			if free, err = p.over(vm); free {
				err = p.endReleased(attachment)
			}
		}
		switch {
		case errors.Is(err, call.ErrLost):
			continue
		case err != nil || free:
			return err
		}
		attachment, err = p.lostAttachment(vm, cid)
		if call.DiskNotAttached.In(err) { // another detach_disk has proven it free meanwhile, and ended the attachment
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// endReleased ends the attachment of a VM that uses nothing any more.
func (p hotPlug) endReleased(attachment *corev1.Pod) error {
	if err := p.End(attachment); err != nil {
		return err
	}
	_, err := p.disks().Release(attachment.Labels[manifest.LabelDisk], ownerBy(attachment))
	return err
}

// over reports that the machine uses nothing, because it has ended.
func (p hotPlug) over(vm string) (bool, error) {
	machine, err := p.Pods.Get(p.Ctx, vm)
	if errors.Is(err, kube.ErrNotFound) {
		return true, nil
	}
	return err == nil && kube.Finished(machine), err
}

// mostProofs is how often a disk in use is proven to be: each proof stays in the attachment's Pod with its program, and
// etcd takes no more than 1.5 MiB. The next detach_disk has the attachment leave as soon as the disk is free.
const mostProofs = 40

// release ends the attachment once the disk is free, which it notes, and reports whether that is so. It keeps the Pod
// up to date.
func (p hotPlug) release(attachment *corev1.Pod) (free bool, err error) {
	if kube.Finished(attachment) {
		return false, nil
	}
	off, err := p.NodeOff(attachment)
	if err != nil {
		return false, err
	}
	if off || !kube.HasRun(manifest.OwnStatus(attachment)) {
		return p.awaitRelease(attachment, "")
	}
	if attachment.DeletionTimestamp != nil {
		return p.awaitLeave(attachment, false)
	}
	if len(attachment.Spec.EphemeralContainers) >= mostProofs {
		return p.leave(attachment, false)
	}
	proof, err := p.beginProof(attachment)
	if errors.Is(err, kube.ErrNotFound) || errors.Is(err, kube.ErrConflict) {
		return false, nil // somebody else has ended it meanwhile
	}
	if err != nil {
		return false, err
	}
	return p.awaitRelease(attachment, proof)
}

// beginProof adds the container that proves the device free to the attachment's Pod, and returns its name.
func (p hotPlug) beginProof(attachment *corev1.Pod) (string, error) {
	release := manifest.Release(attachment)
	patch, err := manifest.AddRelease(attachment, release)
	if err != nil {
		return "", err
	}
	now, err := p.Pods.Patch(p.Ctx, attachment.Name, patch, "ephemeralcontainers")
	if err != nil {
		return "", err
	}
	*attachment = *now
	return release.Name, nil
}

// awaitRelease deletes the attachment once the container named proof has found its device free, on one
// and the same watch, and waits until it is gone. There is no proof to wait for when the attachment's
// container never ran, so that it has no device, or when its node is off. One that was gone before is not free.
//
// A proof whose image cannot be had, as where each start of a container asks the registry (AlwaysPullImages), is given
// up: the attachment is deleted, and proves the disk free by leaving.
func (p hotPlug) awaitRelease(attachment *corev1.Pod, proof string) (free bool, err error) {
	unpulled, asked, again := false, false, false
	depends := p.NodeFails(attachment.Spec.NodeName)
	if proof != "" {
		depends = append(depends, p.Starts(attachment.Name, proof))
	}
	err = p.Follow(depends, attachment, func(now *corev1.Pod) (bool, error) {
		if now == nil || asked {
			return now == nil, nil
		}
		if unpulled = kube.EphemeralUnpulled(attachment, proof); unpulled {
			return true, nil
		}
		if ended, err := proven(attachment, proof); !ended || err != nil {
			return false, err
		}
		asked = true
		if again, err = p.free(attachment); err != nil {
			return false, err
		}
		return false, p.Pods.Delete(p.Ctx, attachment)
	})
	unheld := errors.Is(err, errUnheld) && failure(attachment) != ""
	if unpulled && err == nil || unheld {
		return p.leave(attachment, unheld)
	}
	return asked && !again, p.explainRelease(attachment, err)
}

// free releases the disk, which is proven to be free. again reports that the VM has it once more, by another attachment.
func (p hotPlug) free(attachment *corev1.Pod) (again bool, err error) {
	owner := ownerBy(attachment)
	now, err := p.disks().Release(attachment.Labels[manifest.LabelDisk], owner)
	return now.VM == owner.VM && now.Pod != owner.Pod, err
}

// leave has the attachment end when its device is free. unheld: see awaitLeave.
func (p hotPlug) leave(attachment *corev1.Pod, unheld bool) (left bool, err error) {
	if err := p.Pods.Delete(p.Ctx, attachment); err != nil {
		return false, err
	}
	return p.awaitLeave(attachment, unheld)
}

// awaitLeave waits for an attachment that was told to end, and leaves by itself when its device is free: it reports
// whether it did, or was killed. One that was unheld, since it failed before the VM could see the disk, leaves so too when it has failed
// again, or was not started any more.
func (p hotPlug) awaitLeave(attachment *corev1.Pod, unheld bool) (left bool, err error) {
	err = p.Follow(p.NodeFails(attachment.Spec.NodeName), attachment, func(now *corev1.Pod) (bool, error) {
		ended := manifest.OwnStatus(attachment).State.Terminated
		left = ended != nil && (ended.ExitCode == 0 || unheld && ended.ExitCode == 1) // its device is free then, and only then
		return now == nil, nil
	})
	if left && err == nil {
		var again bool
		again, err = p.free(attachment)
		left = !again
	}
	return left, p.explainRelease(attachment, err)
}

func (p hotPlug) explainRelease(attachment *corev1.Pod, err error) error {
	return p.ExplainTimeout(attachment, err,
		"disk "+attachment.Labels[manifest.LabelDisk]+" was not released on node "+attachment.Spec.NodeName)
}

// errUnheld means that a proof has found nothing, and that the attachment does not hold its disk: it starts, or fails.
var errUnheld = errors.New("the attachment does not hold the disk")

// proven reports that the container named proof has found the device free; without one there is nothing to
// wait for. When it found the device in use, the error says by whom. One that did not end by itself found nothing: ErrLost.
func proven(attachment *corev1.Pod, proof string) (bool, error) {
	if proof == "" {
		return true, nil
	}
	ended := kube.EphemeralEnded(attachment, proof)
	if ended == nil {
		return false, nil
	}
	switch {
	case ended.ExitCode == 0:
		return true, nil
	case ended.ExitCode == manifest.Unheld:
		return false, fmt.Errorf("%w: %w", errUnheld, call.ErrLost)
	case kube.Cut(ended):
		return false, call.CloudError.Errorf("container %s of Pod %s did not end by itself: %s: %w", proof, attachment.Name,
			cmp.Or(strings.TrimSpace(ended.Message), ended.Reason), call.ErrLost)
	default:
		return false, call.InUse(call.CloudError.Errorf("disk %s is still in use in VM %s, nothing was detached: %s",
			attachment.Labels[manifest.LabelDisk], attachment.Labels[manifest.LabelVM], strings.TrimSpace(ended.Message)))
	}
}

// awaitProof waits until the containers that prove the device free have all ended.
func (s *Session) awaitProof(attachment *corev1.Pod) error {
	depends := append(s.NodeFails(attachment.Spec.NodeName), s.Starts(attachment.Name, manifest.LastRelease(attachment)))
	return s.Follow(depends, attachment, func(now *corev1.Pod) (bool, error) {
		return now == nil || now.DeletionTimestamp != nil || !releasing(now), nil
	})
}

// releasing reports that the last container to prove the device free has not ended.
func releasing(attachment *corev1.Pod) bool {
	last := manifest.LastRelease(attachment)
	return last != "" && kube.EphemeralEnded(attachment, last) == nil
}

// released reports that a detach_disk has proven the device free and taken its node away.
func released(attachment *corev1.Pod) bool {
	return slices.ContainsFunc(attachment.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool {
		return manifest.IsRelease(s.Name) && s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	})
}
