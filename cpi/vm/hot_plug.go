package vm

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// hotPlugStrategy is the strategy of machines whose disks come and go while they run: nothing is done to the Pod, and
// all that is done for a disk is done by its attachment.
type hotPlugStrategy struct{ *Session }

func (hotPlugStrategy) validateNetworks(network.Networks) error { return nil }

// ensurePod makes the Pod. One of the same name is what an earlier try with the same agent id left: the
// same request adopts it, another replaces it.
func (p hotPlugStrategy) ensurePod(vm manifest.VM) (*corev1.Pod, error) {
	pod, _, err := call.EnsureOwned(p.Call, p.Pods, vm.Pod(), call.AdoptIf(func(existing *corev1.Pod) (bool, error) {
		if kube.IsActive(existing) && existing.Annotations[manifest.AnnotationDigest] == vm.Digest {
			p.Log.Info("adopting the Pod of an earlier try", "pod", existing.Name)
			return true, nil
		}
		p.Log.Info("replacing the Pod of an earlier try", "pod", existing.Name)
		return false, p.removeVM(existing)
	}))
	return pod, err
}

func (hotPlugStrategy) templateOf(*corev1.Pod) *corev1.PodTemplate { return nil }

func (hotPlugStrategy) keepsPod(*corev1.Pod) bool { return true }

func (hotPlugStrategy) hasAllAttachments(*corev1.Pod, []*corev1.Pod) bool { return true }

// restoreAndListDisks are the disks whose PVCs record the VM. A cluster can take an attachment away, and the VM then uses the disk all the
// same: such an attachment is created again. Nothing waits for it.
func (p hotPlugStrategy) restoreAndListDisks(vmPod *corev1.Pod, attachments []*corev1.Pod) ([]string, error) {
	owned, err := p.diskSession().ListOwnedBy(vmPod.Name)
	if err != nil {
		return nil, err
	}
	attached := []string{}
	for _, pvc := range owned {
		isAttached, err := p.ensureAttachedIfOwned(vmPod, attachments, pvc)
		if err != nil {
			p.Log.Warn("the attachment could not be created again", "disk", pvc.Name, "error", err)
		}
		if isAttached || err != nil {
			attached = append(attached, pvc.Name)
		}
	}
	return attached, nil
}

// ensureAttachedIfOwned reports whether the VM has the disk still, and sees to it that its attachment is there and owns the disk.
func (p hotPlugStrategy) ensureAttachedIfOwned(
	vmPod *corev1.Pod,
	attachments []*corev1.Pod,
	pvc *corev1.PersistentVolumeClaim,
) (bool, error) {
	if !kube.IsActive(vmPod) || vmPod.Spec.NodeName == "" {
		return true, nil
	}
	i := slices.IndexFunc(attachments, func(attachment *corev1.Pod) bool { return attachment.Labels[manifest.LabelDisk] == pvc.Name })
	if i < 0 {
		return p.recreateAttachment(pvc, vmPod)
	}
	if _, ok := manifest.DiskOwnerOf(pvc); ok {
		return true, nil
	}
	return p.assignDisk(pvc, vmPod, attachments[i])
}

// recreateAttachment creates the attachment of a disk that the VM has. One that exists by now is its call's. still is false for a
// disk that was detached since it was read.
func (p hotPlugStrategy) recreateAttachment(pvc *corev1.PersistentVolumeClaim, vmPod *corev1.Pod) (isAttached bool, err error) {
	desired, err := p.buildAttachment(pvc, vmPod)
	if err != nil {
		return false, err
	}
	pod := p.PodOptions.ApplyToHelperPod(desired.Pod())
	attachment, created, err := call.EnsureOwned(p.Call, p.Pods, pod, func(*corev1.Pod) (call.Verdict, error) { return call.Share, nil })
	if err != nil || !created {
		return err == nil, err
	}
	p.Log.Warn("the attachment of a disk in use was deleted by someone else: it is created again", "disk", pvc.Name, "vm", vmPod.Name)
	isAttached, err = p.assignDisk(pvc, vmPod, attachment)
	if isAttached {
		return true, nil
	}
	return false, errors.Join(err, p.rollbackAttachment(attachment))
}

// assignDisk makes the attachment the owner of the disk, unless the disk was detached since its PVC was read: still is false then.
func (p hotPlugStrategy) assignDisk(pvc *corev1.PersistentVolumeClaim, vmPod, attachment *corev1.Pod) (isAttached bool, err error) {
	previous, _ := manifest.DiskOwnerOf(pvc)
	_, _, err = p.diskSession().AssignAndStart(pvc, vmPod.Name, attachment, func(now *corev1.PersistentVolumeClaim) error {
		if owner, _ := manifest.DiskOwnerOf(now); owner != previous {
			return notAttachedError(pvc.Name, vmPod.Name)
		}
		return nil
	})
	if call.DiskNotAttached.Is(err) || call.DiskNotFound.Is(err) {
		return false, nil
	}
	return err == nil, err
}

func (p hotPlugStrategy) restoreAttachment(vmCID, diskCID string) error {
	_, err := p.Attach(vmCID, diskCID)
	return err
}

func (hotPlugStrategy) ensureScheduled(vmPod *corev1.Pod) (*corev1.Pod, error) { return vmPod, nil }

func (hotPlugStrategy) persistMetadata(*corev1.Pod, manifest.Metadata) error { return nil }

func (hotPlugStrategy) persistAddresses(*corev1.Pod, map[string]string) error { return nil }

func (hotPlugStrategy) validateDisk(*corev1.PersistentVolumeClaim, *corev1.Pod) error { return nil }

func (hotPlugStrategy) exposeDisk(*corev1.PersistentVolumeClaim, *corev1.Pod, *corev1.Pod, bool) error {
	return nil
}
