package vm

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// hotPlugStrategy attaches disks to a running VM, and detaches them. The attachment Pod of a disk does all the work; the VM Pod does not
// change.
type hotPlugStrategy struct{ s *Session }

// ensurePod creates the VM Pod. An existing Pod of the same name is from an earlier attempt with the same agent ID: ensurePod adopts it
// if the request is the same, and replaces it otherwise.
func (p hotPlugStrategy) ensurePod(vm manifest.VM) (*corev1.Pod, error) {
	pod, _, err := call.EnsureOwned(p.s.Call, p.s.Pods, vm.Pod(), call.AdoptIf(func(existing *corev1.Pod) (bool, error) {
		if kube.IsActive(existing) && manifest.DigestOf(existing) == vm.Digest {
			p.s.Log.Info("adopting the Pod of an earlier attempt", "pod", existing.Name)
			return true, nil
		}
		p.s.Log.Info("replacing the Pod of an earlier attempt", "pod", existing.Name)
		return false, p.s.removeVM(existing)
	}))
	return pod, err
}

// persist does nothing: the VM keeps its Pod.
func (hotPlugStrategy) persist(*corev1.Pod, manifest.TemplateChange) error { return nil }

// restoreAndListDisks returns the disks that the VM owns. If another client deleted an attachment Pod, the VM still uses the disk:
// restoreAndListDisks recreates the Pod, but does not wait for it.
func (p hotPlugStrategy) restoreAndListDisks(vmPod *corev1.Pod, attachments []*corev1.Pod) ([]string, error) {
	owned, err := p.s.diskSession().ListOwnedBy(vmPod.Name)
	if err != nil {
		return nil, err
	}
	attached := []string{}
	for _, pvc := range owned {
		isAttached, err := p.ensureAttachedIfOwned(vmPod, attachments, pvc)
		if err != nil {
			p.s.Log.Warn("cannot recreate the attachment Pod", "disk", pvc.Name, "error", err)
		}
		if isAttached || err != nil {
			attached = append(attached, pvc.Name)
		}
	}
	return attached, nil
}

// ensureAttachedIfOwned reports whether the VM still has the disk. If so, it ensures that the attachment Pod exists and owns the disk.
func (p hotPlugStrategy) ensureAttachedIfOwned(
	vmPod *corev1.Pod,
	attachments []*corev1.Pod,
	pvc *corev1.PersistentVolumeClaim,
) (bool, error) {
	if !kube.IsActive(vmPod) || vmPod.Spec.NodeName == "" {
		return true, nil
	}
	i := slices.IndexFunc(attachments, func(attachment *corev1.Pod) bool { return manifest.DiskOf(attachment) == pvc.Name })
	if i < 0 {
		return p.recreateAttachment(pvc, vmPod)
	}
	if _, ok := manifest.DiskOwnerOf(pvc); ok {
		return true, nil
	}
	return p.assignDisk(pvc, vmPod, attachments[i])
}

// recreateAttachment creates the missing attachment Pod of a disk of the VM. If another call just created it, recreateAttachment
// leaves it to that call. isAttached is false if the disk was detached since its PVC was read.
func (p hotPlugStrategy) recreateAttachment(pvc *corev1.PersistentVolumeClaim, vmPod *corev1.Pod) (isAttached bool, err error) {
	desired, err := p.s.buildAttachment(pvc, vmPod)
	if err != nil {
		return false, err
	}
	pod := p.s.PodOptions.ApplyToHelperPod(desired.Pod())
	attachment, created, err := call.EnsureOwned(p.s.Call, p.s.Pods, pod, func(*corev1.Pod) (call.Verdict, error) { return call.Share, nil })
	if err != nil || !created {
		return err == nil, err
	}
	p.s.Log.Warn("the attachment Pod of a disk in use was deleted by another client; recreating it", "disk", pvc.Name, "vm", vmPod.Name)
	isAttached, err = p.assignDisk(pvc, vmPod, attachment)
	if isAttached {
		return true, nil
	}
	return false, errors.Join(err, p.s.rollbackAttachment(attachment))
}

// assignDisk records the attachment Pod as the owner of the disk. isAttached is false if the disk was detached since its PVC was
// read.
func (p hotPlugStrategy) assignDisk(
	pvc *corev1.PersistentVolumeClaim,
	vmPod, attachment *corev1.Pod,
) (isAttached bool, err error) {
	previous, _ := manifest.DiskOwnerOf(pvc)
	_, _, err = p.s.diskSession().AssignAndStart(pvc, vmPod.Name, attachment, func(current *corev1.PersistentVolumeClaim) error {
		if owner, _ := manifest.DiskOwnerOf(current); owner != previous {
			return notAttachedError(pvc.Name, vmPod.Name)
		}
		return nil
	})
	if call.DiskNotAttached.Is(err) || call.DiskNotFound.Is(err) {
		return false, nil
	}
	return err == nil, err
}

// exposeDisk does nothing: the attachment Pod has made the disk available.
func (hotPlugStrategy) exposeDisk(*corev1.PersistentVolumeClaim, *corev1.Pod, *corev1.Pod, bool) error {
	return nil
}
