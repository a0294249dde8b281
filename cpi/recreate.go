package cpi

import (
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// A machine with the disk strategy recreate gets and loses a disk with its Pod, which is made again: for
// runtime classes that keep the node's devices out. Its PodTemplate says how the Pod is to be, and is
// changed before the Pod is ended; whatever call comes next makes the Pod that is missing. A disk's
// attachment is there before the machine has the disk, and goes after the machine has lost it: it is the
// record of what is attached, as for any machine, and proves beforehand that the volume can be had.

// strategyRecreate is a value of the cloud property disk_strategy; strategyHotPlug is its default.
const (
	strategyHotPlug  = "hot-plug"
	strategyRecreate = "recreate"
)

// recreatable refuses a disk that cannot be a volume of a machine's own Pod.
func recreatable(claim *corev1.PersistentVolumeClaim, machine *corev1.Pod) error {
	switch {
	case manifest.VolumeMode(claim) == corev1.PersistentVolumeFilesystem && !manifest.IsDirectory(claim):
		return typed(typeNotSupported, "disk %s cannot be attached to VM %s: it is an image file on a Filesystem claim, which needs a loop device of the node, "+
			"and the VM has disk_strategy: recreate. Such a VM takes disks with volume_mode: Block or attach: bind", claim.Name, machine.Name)
	case slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod):
		return typed(typeNotSupported, "disk %s cannot be attached to VM %s: the VM has disk_strategy: recreate, where its Pod and the disk's attachment both use the claim, "+
			"which its access mode ReadWriteOncePod forbids", claim.Name, machine.Name)
	}
	return nil
}

// bringRecreated makes what such a machine is made from, and its Pod. When there is no Pod in the end, the
// rest goes too.
func (c *call) bringRecreated(cluster *kube.Client, vm manifest.VM) (*corev1.Pod, error) {
	template, err := c.bringTemplate(cluster, vm)
	if template == nil {
		return nil, err
	}
	if err == nil {
		err = c.bringStorage(cluster, vm, template)
	}
	if err == nil {
		var pod *corev1.Pod
		if pod, err = c.bringMachine(cluster, template); err == nil {
			return pod, nil
		}
	}
	undo, cancel := c.detached()
	defer cancel()
	return nil, errors.Join(err, undo.removeTemplate(cluster, template))
}

// bringTemplate makes the machine's PodTemplate, in the place of the one of an earlier try with another
// request.
func (c *call) bringTemplate(cluster *kube.Client, vm manifest.VM) (*corev1.PodTemplate, error) {
	template, _, err := cluster.Templates.Bring(c.ctx, vm.Template(), func(left *corev1.PodTemplate) (bool, error) {
		if left.DeletionTimestamp == nil && left.Annotations[manifest.AnnotationDigest] == vm.Digest {
			return true, nil
		}
		return false, c.removeTemplate(cluster, left)
	})
	return template, err
}

// bringStorage makes the claim of the machine's own storage.
func (c *call) bringStorage(cluster *kube.Client, vm manifest.VM, template *corev1.PodTemplate) error {
	_, _, err := cluster.Claims.Bring(c.ctx, vm.Storage(template), func(left *corev1.PersistentVolumeClaim) (bool, error) {
		if left.DeletionTimestamp == nil && ownedBy(left, template.UID) {
			return true, nil
		}
		return false, cluster.Claims.Remove(c.ctx, left)
	})
	return err
}

// removeTemplate ends the machine, and removes what it was made from; the garbage collector does the rest.
func (c *call) removeTemplate(cluster *kube.Client, template *corev1.PodTemplate) error {
	pod, err := cluster.Pods.Get(c.ctx, template.Name)
	if err == nil {
		return c.removePod(cluster, pod)
	}
	if !errors.Is(err, kube.ErrNotFound) {
		return err
	}
	return cluster.Templates.Remove(c.ctx, template)
}

// templateOf is what the Pod of a machine that is made again for each disk is made from.
func templateOf(machine *corev1.Pod) *corev1.PodTemplate {
	return &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: machine.Name, UID: manifest.Owner(machine).UID}}
}

// template answers the machine's PodTemplate; a machine without one is not there.
func (c *call) template(cluster *kube.Client, vm string) (*corev1.PodTemplate, error) {
	template, err := cluster.Templates.Get(c.ctx, vm)
	if errors.Is(err, kube.ErrNotFound) || err == nil && (template.DeletionTimestamp != nil || template.Labels[manifest.LabelRole] != manifest.RoleTemplate) {
		return nil, vmNotFound(vm)
	}
	return template, err
}

// doomedTemplate answers the PodTemplate of a machine that is to be deleted; nil for a machine without one.
func (c *call) doomedTemplate(cluster *kube.Client, vm string, pods []*corev1.Pod) (*corev1.PodTemplate, error) {
	if machines := only(manifest.RoleVM, pods); len(machines) > 0 {
		if !manifest.Recreated(machines[0]) {
			return nil, nil
		}
		return templateOf(machines[0]), nil
	}
	template, err := c.template(cluster, vm)
	if isVMNotFound(err) {
		return nil, nil
	}
	return template, err
}

// change stores how the machine is to be from now on.
func (c *call) change(cluster *kube.Client, vm string, change manifest.Change) (*corev1.PodTemplate, error) {
	patch, err := change.Patch()
	if err != nil {
		return nil, err
	}
	template, err := cluster.Templates.Patch(c.ctx, vm, types.StrategicMergePatchType, patch)
	if errors.Is(err, kube.ErrNotFound) {
		return nil, vmNotFound(vm)
	}
	return template, err
}

// bringMachine makes the Pod of the template, in the place of one that has other disks or has ended. It
// runs where the machine's disks are attached.
func (c *call) bringMachine(cluster *kube.Client, template *corev1.PodTemplate) (*corev1.Pod, error) {
	found, err := cluster.Pods.List(c.ctx, ofVM(template.Name))
	if err != nil {
		return nil, err
	}
	wanted := manifest.Machine(template, nodeOf(only(manifest.RoleAttachment, found.Items)))
	machine, _, err := cluster.Pods.Bring(c.ctx, wanted, func(left *corev1.Pod) (bool, error) {
		switch {
		case !ownedBy(left, template.UID):
			return false, c.removePod(cluster, left) // what an earlier try with another request left
		case runs(left) && slices.Equal(manifest.Disks(left.Spec), manifest.Disks(wanted.Spec)):
			return true, nil
		}
		now, err := c.template(cluster, template.Name)
		if err != nil {
			return false, err
		}
		if runs(left) && slices.Equal(manifest.Disks(left.Spec), manifest.Disks(now.Template.Spec)) {
			return true, nil // another call was faster
		}
		return false, c.endPod(cluster, left)
	})
	return machine, err
}

// runs reports that the Pod has neither ended nor is to end.
func runs(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil && !kube.Finished(pod) }

// bringUp makes the Pod of the template and waits until the machine is up, with the disks and the addresses
// that it is to have.
func (c *call) bringUp(cluster *kube.Client, template *corev1.PodTemplate) (*corev1.Pod, error) {
	for {
		machine, err := c.bringMachine(cluster, template)
		if err != nil {
			return nil, err
		}
		err = c.awaitBoot(cluster, machine)
		if err == nil {
			return machine, keptAddresses(machine, template)
		}
		if !errors.Is(err, errReplaced) {
			detached, cancel := c.detached()
			defer cancel()
			return nil, &Error{kind: typeCloudError, err: &explained{err, "VM " + machine.Name + " did not come up again: " + cluster.Explain(detached.ctx, machine)}}
		}
		if template, err = c.template(cluster, template.Name); err != nil {
			return nil, err
		}
	}
}

// keptAddresses fails when the machine came back with other addresses than it had.
func keptAddresses(machine *corev1.Pod, template *corev1.PodTemplate) error {
	had, has := template.Annotations[manifest.AnnotationAddresses], strings.Join(podAddresses(machine), ",")
	if had == "" || had == has {
		return nil
	}
	return typed(typeCloudError, "VM %s had the address %s, and its new Pod has %s: disk_strategy: recreate needs a network plugin that gives a Pod the address that it asks for",
		machine.Name, had, has)
}

// giveDisk makes the machine again with the disk, which is attached.
func (c *call) giveDisk(cluster *kube.Client, machine *corev1.Pod, disk *corev1.PersistentVolumeClaim) error {
	template, err := c.change(cluster, machine.Name, manifest.Change{Add: disk, Addresses: podAddresses(machine)})
	if err != nil {
		return err
	}
	_, err = c.bringUp(cluster, template)
	return err
}

// takeDisk makes the machine again without the disk, and then ends the attachment. A disk that is still
// in use is let go by the machine as at its shutdown.
func (c *call) takeDisk(cluster *kube.Client, vm string, attachment *corev1.Pod) error {
	template, err := c.change(cluster, vm, manifest.Change{Remove: attachment.Labels[manifest.LabelDisk]})
	if err == nil {
		_, err = c.bringUp(cluster, template)
	}
	if err != nil {
		return err
	}
	return c.endPod(cluster, attachment)
}

// restart makes the machine again as it is.
func (c *call) restart(cluster *kube.Client, machine *corev1.Pod) error {
	template, err := c.change(cluster, machine.Name, manifest.Change{Addresses: podAddresses(machine)})
	if err != nil {
		return err
	}
	if err := c.endPod(cluster, machine); err != nil {
		return err
	}
	_, err = c.bringUp(cluster, template)
	return err
}

// revive makes a machine whose Pod is missing, as after a call that was cut short or a drain, and attaches
// those of its disks whose attachment went with the Pod.
func (c *call) revive(cluster *kube.Client, vm string) error {
	template, err := c.template(cluster, vm)
	if err != nil {
		return err
	}
	machine, err := c.bringUp(cluster, template)
	if err != nil {
		return err
	}
	for _, disk := range manifest.Disks(machine.Spec) {
		claim, err := c.claim(cluster, disk)
		if err != nil {
			return err
		}
		if err := c.bringAttached(cluster, claim, machine); err != nil {
			return err
		}
	}
	return nil
}
