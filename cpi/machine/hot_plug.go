package machine

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// hotPlug is the strategy of machines whose disks come and go while they run: nothing is done to the Pod, and
// all that is done for a disk is done by its attachment.
type hotPlug struct{ *Session }

func (hotPlug) permit(network.Networks) error { return nil }

// bring makes the Pod. One of the same name is what an earlier try with the same agent id left: the
// same request adopts it, another replaces it.
func (p hotPlug) bring(vm manifest.VM) (*corev1.Pod, error) {
	pod, _, err := call.EnsureOwned(p.Call, p.Pods, vm.Pod(), call.Adopted(func(existing *corev1.Pod) (bool, error) {
		if kube.Runs(existing) && existing.Annotations[manifest.AnnotationDigest] == vm.Digest {
			p.Log.Info("adopting the Pod of an earlier try", "pod", existing.Name)
			return true, nil
		}
		p.Log.Info("replacing the Pod of an earlier try", "pod", existing.Name)
		return false, p.remove(existing)
	}))
	return pod, err
}

func (hotPlug) origin(*corev1.Pod) *corev1.PodTemplate { return nil }

func (hotPlug) stays(*corev1.Pod) bool { return true }

func (hotPlug) whole(*corev1.Pod, []*corev1.Pod) bool { return true }

// held are the disks whose PVCs record the VM. A cluster can take an attachment away, and the VM then uses the disk all the
// same: such an attachment is created again. Nothing waits for it.
func (p hotPlug) held(machine *corev1.Pod, attachments []*corev1.Pod) ([]string, error) {
	owned, err := p.disks().OwnedBy(machine.Name)
	if err != nil {
		return nil, err
	}
	held := []string{}
	for _, pvc := range owned {
		still, err := p.holds(machine, attachments, pvc)
		if err != nil {
			p.Log.Warn("the attachment could not be created again", "disk", pvc.Name, "error", err)
		}
		if still || err != nil {
			held = append(held, pvc.Name)
		}
	}
	return held, nil
}

// holds reports whether the VM has the disk still, and sees to it that its attachment is there and owns the disk.
func (p hotPlug) holds(machine *corev1.Pod, attachments []*corev1.Pod, pvc *corev1.PersistentVolumeClaim) (bool, error) {
	if !kube.Runs(machine) || machine.Spec.NodeName == "" {
		return true, nil
	}
	i := slices.IndexFunc(attachments, func(each *corev1.Pod) bool { return each.Labels[manifest.LabelDisk] == pvc.Name })
	if i < 0 {
		return p.reattach(pvc, machine)
	}
	if _, ok := manifest.DiskOwnerOf(pvc); ok {
		return true, nil
	}
	return p.own(pvc, machine, attachments[i])
}

// reattach creates the attachment of a disk that the VM has. One that exists by now is its call's. still is false for a
// disk that was detached since it was read.
func (p hotPlug) reattach(pvc *corev1.PersistentVolumeClaim, machine *corev1.Pod) (still bool, err error) {
	wanted, err := p.attachmentOf(pvc, machine)
	if err != nil {
		return false, err
	}
	pod := p.PodOptions.Equip(wanted.Pod())
	attachment, created, err := call.EnsureOwned(p.Call, p.Pods, pod, func(*corev1.Pod) (call.Verdict, error) { return call.Share, nil })
	if err != nil || !created {
		return err == nil, err
	}
	p.Log.Warn("the attachment of a disk in use was deleted by someone else: it is created again", "disk", pvc.Name, "vm", machine.Name)
	still, err = p.own(pvc, machine, attachment)
	if still {
		return true, nil
	}
	return false, errors.Join(err, p.undoAttachment(attachment))
}

// own makes the attachment the owner of the disk, unless the disk was detached since its PVC was read: still is false then.
func (p hotPlug) own(pvc *corev1.PersistentVolumeClaim, machine, attachment *corev1.Pod) (still bool, err error) {
	had, _ := manifest.DiskOwnerOf(pvc)
	_, _, err = p.disks().Own(pvc, machine.Name, attachment, func(now *corev1.PersistentVolumeClaim) error {
		if owner, _ := manifest.DiskOwnerOf(now); owner != had {
			return notAttached(pvc.Name, machine.Name)
		}
		return nil
	})
	if call.DiskNotAttached.In(err) || call.DiskNotFound.In(err) {
		return false, nil
	}
	return err == nil, err
}

func (p hotPlug) regain(vm, cid string) error {
	_, err := p.Attach(vm, cid)
	return err
}

func (hotPlug) placed(machine *corev1.Pod) (*corev1.Pod, error) { return machine, nil }

func (hotPlug) describe(*corev1.Pod, manifest.Metadata) error { return nil }

func (hotPlug) keep(*corev1.Pod, map[string]string) error { return nil }

func (hotPlug) accept(*corev1.PersistentVolumeClaim, *corev1.Pod) error { return nil }

func (hotPlug) give(*corev1.PersistentVolumeClaim, *corev1.Pod, *corev1.Pod, bool) error { return nil }
