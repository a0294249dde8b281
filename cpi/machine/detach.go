package machine

import (
	"errors"
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
	return s.strategyOf(attachment).take(vm, attachment)
}

// lostAttachment returns the attachment, made again, that was taken away from a disk among the machine's own
// volumes. Any other disk is not attached to this VM, or it or the VM does not exist.
func (s *Session) lostAttachment(vm, cid string) (*corev1.Pod, error) {
	claim, err := s.disks().Claim(cid)
	if err != nil {
		return nil, err
	}
	holder, err := s.disks().HolderOf(claim)
	if err != nil {
		return nil, err
	}
	if holder == vm {
		if err := s.revive(vm); err != nil {
			return nil, err
		}
		return s.Pods.Get(s.Ctx, manifest.AttachmentName(cid))
	}
	there, err := s.Has(vm)
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, call.NoVM(vm)
	}
	return nil, call.DiskNotAttached.Errorf("disk %s is not attached to VM %s", cid, vm)
}

// take proves the disk free, and ends its attachment.
//
// The proof is a container in the attachment's Pod that opens the device as a mount would: with
// O_EXCL, which fails as long as any filesystem in any mount namespace is on it. In the same moment it
// takes the device's node away, so that nothing can mount it any more.
func (p hotPlug) take(vm string, attachment *corev1.Pod) error {
	if kube.Finished(attachment) {
		machine, err := p.Pods.Get(p.Ctx, vm)
		if errors.Is(err, kube.ErrNotFound) || err == nil && kube.Finished(machine) {
			return p.End(attachment) // what has ended uses nothing
		}
		if err != nil {
			return err
		}
		if attachment, err = p.attachAgain(vm, attachment); err != nil {
			return err
		}
	}
	off, err := p.NodeOff(attachment)
	if err != nil {
		return err
	}
	for {
		proof := ""
		if kube.HasRun(manifest.OwnStatus(attachment)) && attachment.DeletionTimestamp == nil && !off {
			if attachment, proof, err = p.beginProof(attachment); err != nil {
				return err
			}
		}
		if err := p.awaitRelease(attachment, proof); !errors.Is(err, call.ErrNeverStarts) {
			return err
		}
	}
}

// attachAgain brings back an attachment that was evicted while its machine may use the device still: only an
// attachment that runs can tell.
func (p hotPlug) attachAgain(vm string, evicted *corev1.Pod) (*corev1.Pod, error) {
	if _, err := p.Attach(vm, evicted.Labels[manifest.LabelDisk]); err != nil {
		return nil, err
	}
	return p.Pods.Get(p.Ctx, evicted.Name)
}

// beginProof adds the container that proves the device free to the attachment's Pod, and returns the Pod and
// the container's name.
func (p hotPlug) beginProof(attachment *corev1.Pod) (*corev1.Pod, string, error) {
	release := manifest.Release(attachment)
	patch, err := manifest.AddRelease(release)
	if err != nil {
		return nil, "", err
	}
	attachment, err = p.Pods.Patch(p.Ctx, attachment.Name, patch, "ephemeralcontainers")
	return attachment, release.Name, err
}

// awaitRelease deletes the attachment once the container named proof has found its device free, on one
// and the same watch, and waits until it is gone. There is no proof to wait for when the attachment's
// container never ran, so that it has no device; when its node is off; or when it is on its way out: then
// it leaves by itself when its device is free.
func (p hotPlug) awaitRelease(attachment *corev1.Pod, proof string) error {
	asked := attachment.DeletionTimestamp != nil
	depends := p.NodeFails(attachment.Spec.NodeName)
	if proof != "" {
		depends = append(depends, p.Starts(attachment.Name, proof))
	}
	err := p.Follow(depends, attachment, func(now *corev1.Pod) (bool, error) {
		if now == nil {
			return true, nil
		}
		if asked || attachment.DeletionTimestamp != nil {
			return false, nil
		}
		if free, err := proven(attachment, proof); !free || err != nil {
			return false, err
		}
		asked = true
		return false, p.Pods.Delete(p.Ctx, attachment)
	})
	return p.ExplainTimeout(attachment, err,
		"disk "+attachment.Labels[manifest.LabelDisk]+" was not released on node "+attachment.Spec.NodeName)
}

// proven reports that the container named proof has found the device free; without one there is nothing to
// wait for. When it found the device in use, the error says by whom.
func proven(attachment *corev1.Pod, proof string) (bool, error) {
	if proof == "" {
		return true, nil
	}
	ended := kube.EphemeralEnded(attachment, proof)
	if ended == nil {
		return false, nil
	}
	if ended.ExitCode != 0 {
		return false, call.CloudError.Errorf("disk %s is still in use in VM %s, nothing was detached: %s",
			attachment.Labels[manifest.LabelDisk], attachment.Labels[manifest.LabelVM], strings.TrimSpace(ended.Message))
	}
	return true, nil
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
