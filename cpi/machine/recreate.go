package machine

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// recreate is the strategy of machines that get and lose a disk with their Pod, which is made again: for
// runtime classes that keep the node's devices out. A machine's PodTemplate says how its Pod is to be, and is
// changed before the Pod is ended; whatever call comes next makes the Pod that is missing. A disk's
// attachment is there before the machine has the disk, and goes after the machine has lost it: it is the
// record of what is attached, as for any machine, and proves beforehand that the volume can be had.
type recreate struct{ *Session }

// permit refuses networks on which the next Pod could not have the address of this one.
func (r recreate) permit(networks network.Networks) error {
	if networks.Dynamic() && !r.Network.KeepDynamicAddresses {
		return call.Invalid("cloud_properties.disk_strategy: recreate needs a manual network, or network.keep_dynamic_addresses: " +
			"the VM's Pod is made again for each disk, and would get another address")
	}
	return nil
}

// accept refuses a disk that cannot be a volume of a machine's own Pod.
func (recreate) accept(claim *corev1.PersistentVolumeClaim, machine *corev1.Pod) error {
	switch {
	case manifest.VolumeMode(claim) == corev1.PersistentVolumeFilesystem && !manifest.IsDirectory(claim):
		return call.NotSupported.Errorf("disk %s cannot be attached to VM %s: it is an image file on a Filesystem claim, "+
			"which needs a loop device of the node, and the VM has disk_strategy: recreate. "+
			"Such a VM takes disks with volume_mode: Block or attach: bind", claim.Name, machine.Name)
	case slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod):
		return call.NotSupported.Errorf("disk %s cannot be attached to VM %s: the VM has disk_strategy: recreate, "+
			"where its Pod and the disk's attachment both use the claim, which its access mode ReadWriteOncePod forbids",
			claim.Name, machine.Name)
	}
	return nil
}

// bring makes what such a machine is made from, and its Pod. When there is no Pod in the end, the
// rest goes too.
func (r recreate) bring(vm manifest.VM) (*corev1.Pod, error) {
	template, err := r.ensureTemplate(vm)
	if err != nil {
		return nil, err
	}
	var pod *corev1.Pod
	if err = r.bringStorage(vm, template); err == nil {
		pod, err = r.bringMachine(template)
	}
	if err == nil && !r.Owns(pod) {
		pod, err = r.adoptPod(pod)
	}
	if err == nil {
		return pod, nil
	}
	undo, cancel := r.detached()
	defer cancel()
	_, undone := recreate{undo}.removeOwnTemplate(template)
	return nil, errors.Join(err, undone)
}

// adoptPod makes the Pod this call's own, whatever others report of it meanwhile.
func (r recreate) adoptPod(pod *corev1.Pod) (*corev1.Pod, error) {
	patch, err := manifest.AnnotatePod(pod, map[string]string{manifest.AnnotationCall: r.ID()})
	if err != nil {
		return nil, err
	}
	return r.Pods.Patch(r.Ctx, pod.Name, patch)
}

// ensureTemplate creates the machine's PodTemplate, or adopts the one of an earlier try with the same request; one with
// another request is replaced.
func (r recreate) ensureTemplate(vm manifest.VM) (*corev1.PodTemplate, error) {
	template, _, err := call.EnsureOwned(r.Call, r.Templates, vm.Template(), call.Adopted(func(existing *corev1.PodTemplate) (bool, error) {
		if existing.DeletionTimestamp == nil && existing.Annotations[manifest.AnnotationDigest] == vm.Digest {
			return true, nil
		}
		return false, r.removeTemplate(existing)
	}))
	return template, err
}

// removeOwnTemplate removes what a create_vm that fails has made, unless a repeated one has adopted it. Without the
// template no call creates the Pod again.
func (r recreate) removeOwnTemplate(template *corev1.PodTemplate) (mine bool, err error) {
	mine, err = call.DeleteOwn(r.Call, r.Templates, template, call.Never)
	if !mine || err != nil {
		return mine, err
	}
	pod, err := r.Pods.Get(r.Ctx, template.Name)
	if errors.Is(err, kube.ErrNotFound) || err == nil && !kube.OwnedBy(pod, template.UID) {
		return true, r.Templates.AwaitGone(r.Ctx, template)
	}
	if err != nil {
		return true, err
	}
	return true, r.remove(pod)
}

// bringStorage makes the claim of the machine's own storage.
func (r recreate) bringStorage(vm manifest.VM, template *corev1.PodTemplate) error {
	_, _, err := r.Claims.Bring(r.Ctx, vm.Storage(template), func(left *corev1.PersistentVolumeClaim) (bool, error) {
		if left.DeletionTimestamp == nil && kube.OwnedBy(left, template.UID) {
			return true, nil
		}
		return false, r.Claims.Remove(r.Ctx, left)
	})
	return err
}

// removeTemplate ends the machine, and removes what it was made from; the garbage collector does the rest.
func (r recreate) removeTemplate(template *corev1.PodTemplate) error {
	pod, err := r.Pods.Get(r.Ctx, template.Name)
	if err == nil {
		return r.remove(pod)
	}
	if !errors.Is(err, kube.ErrNotFound) {
		return err
	}
	return r.Templates.Remove(r.Ctx, template)
}

// origin is the PodTemplate, without its content.
func (recreate) origin(machine *corev1.Pod) *corev1.PodTemplate {
	return &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: machine.Name, UID: manifest.Owner(machine).UID}}
}

func (recreate) stays(pod *corev1.Pod) bool { return kube.Runs(pod) }

func (recreate) whole(machine *corev1.Pod, attachments []*corev1.Pod) bool {
	return len(lacking(machine, attachments)) == 0
}

// placed waits for a machine that was just made again, which may not have its node yet.
func (r recreate) placed(machine *corev1.Pod) (*corev1.Pod, error) {
	if machine.Spec.NodeName != "" {
		return machine, nil
	}
	return r.boot(machine.Name)
}

// held are those that have attachments: whole has seen to it that it is all.
func (recreate) held(_ *corev1.Pod, attachments []*corev1.Pod) ([]string, error) {
	return disksOf(attachments), nil
}

// regain makes the machine's Pod again if it is missing, and with it what is missing beside it.
func (r recreate) regain(vm, _ string) error { return r.revive(vm) }

// describe puts the metadata into the template.
func (r recreate) describe(pod *corev1.Pod, metadata manifest.Metadata) error {
	_, err := r.change(pod.Name, manifest.Change{Metadata: &metadata})
	return err
}

// keep lets each Pod of the machine ask for the addresses of the first, and writes them down.
func (r recreate) keep(pod *corev1.Pod, asking map[string]string) error {
	template, err := r.Template(pod.Name)
	if err != nil {
		return err
	}
	_, err = r.change(pod.Name, manifest.Change{
		Addresses: network.OfPod(pod),
		Metadata:  &manifest.Metadata{Annotations: unset(asking, template.Template.Annotations)},
	})
	return err
}

// change stores how the machine is to be from now on.
func (r recreate) change(vm string, change manifest.Change) (*corev1.PodTemplate, error) {
	patch, err := change.Patch()
	if err != nil {
		return nil, err
	}
	template, err := r.Templates.Patch(r.Ctx, vm, patch)
	if errors.Is(err, kube.ErrNotFound) {
		return nil, call.NoVM(vm)
	}
	return template, err
}

// give makes the machine again with the disk, which is attached. When that fails for a disk that this
// call has attached, the machine is made again without it, and has the time that an attachment has to come up again.
func (r recreate) give(disk *corev1.PersistentVolumeClaim, machine, attachment *corev1.Pod, mine bool) error {
	template, err := r.change(machine.Name, manifest.Change{Add: disk})
	if err != nil {
		return err
	}
	machine, err = r.bringUp(template)
	if err == nil {
		_, _, _, err := r.ensureAttachment(disk, machine) // a detach_disk may have ended it meanwhile
		return err
	}
	if !mine {
		return err
	}
	undo, cancel := r.detachedFor(r.AttachTime)
	defer cancel()
	now, unknown := undo.Pods.Get(undo.Ctx, attachment.Name)
	if unknown == nil && now.UID == attachment.UID && !r.Owns(now) {
		return err // a repeated call has adopted it
	}
	return errors.Join(err, recreate{undo}.returnFrom(template.Name, attachment))
}

// take makes the machine again without the disk, ends the attachment, and waits until the machine is up.
// A disk that is in use is let go by the machine as at its shutdown.
func (r recreate) take(vm string, attachment *corev1.Pod) error {
	if _, err := r.NodeOff(attachment); err != nil {
		return err
	}
	err := r.returnFrom(vm, attachment)
	if errors.Is(err, errReplaced) {
		return nil // another call waits for its successor
	}
	return err
}

// returnFrom is withdraw, and waits until the machine is up.
func (r recreate) returnFrom(vm string, attachment *corev1.Pod) error {
	machine, template, err := r.withdraw(vm, attachment)
	if err != nil {
		return err
	}
	return r.awaitUp(machine, template)
}

// withdraw makes the machine's Pod again without the disk, which is free once there is one, and ends the
// attachment.
func (r recreate) withdraw(vm string, attachment *corev1.Pod) (*corev1.Pod, *corev1.PodTemplate, error) {
	disk := attachment.Labels[manifest.LabelDisk]
	template, err := r.change(vm, manifest.Change{Remove: disk})
	if err != nil {
		return nil, nil, err
	}
	machine, err := r.bringMachine(template)
	if err != nil {
		return nil, nil, err
	}
	if slices.Contains(manifest.Disks(machine.Spec), disk) {
		return nil, nil, call.CloudError.Errorf("disk %s was attached to VM %s again while it was being detached", disk, vm)
	}
	if err := r.End(attachment); err != nil {
		return nil, nil, err
	}
	_, err = r.disks().Release(disk, ownerBy(attachment))
	return machine, template, err
}

// reboot makes the machine again as it is.
func (r recreate) reboot(machine *corev1.Pod) error {
	if err := r.OnNode(machine); err != nil {
		return err
	}
	template, err := r.Template(machine.Name)
	if err != nil {
		return err
	}
	if err := r.End(machine); err != nil {
		return err
	}
	_, err = r.bringUp(template)
	return err
}

// boot makes a machine's Pod that is missing, and waits until the machine is up.
func (r recreate) boot(vm string) (*corev1.Pod, error) {
	template, err := r.Template(vm)
	if err != nil {
		return nil, err
	}
	return r.bringUp(template)
}

// revive makes a machine's Pod that is missing, as after a call that was cut short or a drain. It does not
// wait for the machine.
func (r recreate) revive(vm string) error {
	template, err := r.Template(vm)
	if err != nil {
		return err
	}
	_, err = r.bringMachine(template)
	return err
}
