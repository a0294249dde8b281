package cpi

import (
	"errors"
	"reflect"
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
// record of what is attached, as for any machine, and proves beforehand that the volume can be had. Should
// someone take it away, the disk's claim still names the machine.

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
	if err != nil {
		return nil, err
	}
	var pod *corev1.Pod
	if err = c.bringStorage(cluster, vm, template); err == nil {
		pod, err = c.bringMachine(cluster, template)
	}
	if err == nil {
		return pod, nil
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

// bringMachine makes the Pod of the template, in the place of one that has other disks or has ended. Before
// that each of its disks has its attachment: one that another machine has keeps the Pod from being made.
func (c *call) bringMachine(cluster *kube.Client, template *corev1.PodTemplate) (*corev1.Pod, error) {
	wanted, err := c.wantedMachine(cluster, template)
	if err != nil {
		return nil, err
	}
	machine, _, err := cluster.Pods.Bring(c.ctx, wanted, func(left *corev1.Pod) (bool, error) {
		if !ownedBy(left, template.UID) {
			return false, c.removePod(cluster, left) // what an earlier try with another request left
		}
		now, err := c.template(cluster, template.Name) // another call may have been faster
		if err != nil {
			return false, err
		}
		placed := left.Spec.NodeName != "" || reflect.DeepEqual(left.Spec.Affinity, wanted.Spec.Affinity)
		if runs(left) && placed && slices.Equal(manifest.Disks(left.Spec), manifest.Disks(now.Template.Spec)) {
			return true, nil
		}
		return false, c.endPod(cluster, left)
	})
	return machine, err
}

// wantedMachine answers the Pod of the template for the node where the machine's disks are, and attaches
// those that are not attached.
func (c *call) wantedMachine(cluster *kube.Client, template *corev1.PodTemplate) (*corev1.Pod, error) {
	found, err := cluster.Pods.List(c.ctx, ofVM(template.Name))
	if err != nil {
		return nil, err
	}
	pods := running(found.Items)
	attachments := only(manifest.RoleAttachment, pods)
	node := nodeOf(only(manifest.RoleVM, pods))
	if node == "" {
		if node, err = c.nodeOfDisks(cluster, attachments); err != nil {
			return nil, err
		}
	}
	wanted := manifest.Machine(template, node)
	if node == "" {
		attachments = nil
	}
	placed := wanted.DeepCopy()
	placed.Spec.NodeName = node
	return wanted, c.attachAll(cluster, placed, attachments)
}

// nodeOfDisks is where the disks of a machine that does not run are attached. Attachments on a node that is
// out of service are ended, so that the machine can be made elsewhere.
func (c *call) nodeOfDisks(cluster *kube.Client, attachments []*corev1.Pod) (string, error) {
	node := nodeOf(attachments)
	if node == "" {
		return "", nil
	}
	found, err := cluster.Nodes.List(c.ctx, kube.Selection{Name: node})
	if err != nil {
		return "", err
	}
	off, err := nodeState(found.Items)
	if !off || err != nil {
		return node, err
	}
	for _, attachment := range attachments {
		if err := c.endPod(cluster, attachment); err != nil {
			return "", err
		}
	}
	return "", nil
}

// attachAll brings the attachments that the machine's disks lack.
func (c *call) attachAll(cluster *kube.Client, machine *corev1.Pod, attachments []*corev1.Pod) error {
	for _, disk := range lacking(machine, attachments) {
		claim, err := c.claim(cluster, disk)
		if err != nil {
			return err
		}
		if _, _, err := c.bringAttachment(cluster, claim, machine); err != nil {
			return err
		}
	}
	return nil
}

// lacking are the disks among the machine's own volumes that have no attachment.
func lacking(machine *corev1.Pod, attachments []*corev1.Pod) []string {
	return slices.DeleteFunc(manifest.Disks(machine.Spec), func(disk string) bool {
		return slices.ContainsFunc(attachments, func(pod *corev1.Pod) bool { return pod.Labels[manifest.LabelDisk] == disk })
	})
}

// runs reports that the Pod has neither ended nor is to end.
func runs(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil && !kube.Finished(pod) }

// running are those of the Pods that run.
func running(pods []*corev1.Pod) (some []*corev1.Pod) {
	for _, pod := range pods {
		if runs(pod) {
			some = append(some, pod)
		}
	}
	return some
}

// bringUp makes the Pod of the template and waits until the machine is up, with the disks and the addresses
// that it is to have.
func (c *call) bringUp(cluster *kube.Client, template *corev1.PodTemplate) (*corev1.Pod, error) {
	for {
		machine, err := c.bringMachine(cluster, template)
		if err != nil {
			return nil, err
		}
		err = c.awaitUp(cluster, machine, template)
		if !errors.Is(err, errReplaced) {
			return machine, err
		}
		if template, err = c.template(cluster, template.Name); err != nil {
			return nil, err
		}
	}
}

// awaitUp waits until the machine is up, with the addresses that it had before.
func (c *call) awaitUp(cluster *kube.Client, machine *corev1.Pod, template *corev1.PodTemplate) error {
	err := c.awaitBoot(cluster, machine)
	switch {
	case err == nil:
		return keptAddresses(machine, template)
	case errors.Is(err, errReplaced):
		return err
	}
	detached, cancel := c.detached()
	defer cancel()
	return &Error{kind: typeCloudError, err: &explained{err, "VM " + machine.Name + " did not come up again: " + cluster.Explain(detached.ctx, machine)}}
}

// keptAddresses fails when the machine is up with other addresses than it had.
func keptAddresses(machine *corev1.Pod, template *corev1.PodTemplate) error {
	had, has := template.Annotations[manifest.AnnotationAddresses], strings.Join(podAddresses(machine), ",")
	if had == "" || has == "" || had == has {
		return nil
	}
	return typed(typeCloudError, "VM %s had the address %s, and its new Pod has %s: disk_strategy: recreate needs a network plugin that gives a Pod the address that it asks for; recreate the VM",
		machine.Name, had, has)
}

// giveDisk makes the machine again with the disk, which is attached. When that fails for a disk that this
// call has attached, the machine is made again without it.
func (c *call) giveDisk(cluster *kube.Client, machine *corev1.Pod, disk *corev1.PersistentVolumeClaim, attached *corev1.Pod, mine bool) error {
	if err := c.annotateClaim(cluster, disk.Name, manifest.AnnotationVM, &machine.Name); err != nil {
		return err
	}
	template, err := c.change(cluster, machine.Name, manifest.Change{Add: disk})
	if err != nil {
		return err
	}
	machine, err = c.bringUp(cluster, template)
	if err == nil {
		_, _, err := c.bringAttachment(cluster, disk, machine) // a detach_disk may have ended it meanwhile
		return err
	}
	if mine {
		undo, cancel := c.detached()
		defer cancel()
		_, _, undone := undo.withdraw(cluster, template.Name, attached)
		err = errors.Join(err, undone)
	}
	return err
}

// takeDisk makes the machine again without the disk, ends the attachment, and waits until the machine is up.
// A disk that is in use is let go by the machine as at its shutdown.
func (c *call) takeDisk(cluster *kube.Client, vm string, attachment *corev1.Pod) error {
	if _, err := c.nodeOff(cluster, attachment); err != nil {
		return err
	}
	machine, template, err := c.withdraw(cluster, vm, attachment)
	if err != nil {
		return err
	}
	err = c.awaitUp(cluster, machine, template)
	if errors.Is(err, errReplaced) {
		return nil // another call waits for its successor
	}
	return err
}

// withdraw makes the machine's Pod again without the disk, which is free once there is one, and ends the
// attachment.
func (c *call) withdraw(cluster *kube.Client, vm string, attachment *corev1.Pod) (*corev1.Pod, *corev1.PodTemplate, error) {
	disk := attachment.Labels[manifest.LabelDisk]
	template, err := c.change(cluster, vm, manifest.Change{Remove: disk})
	if err != nil {
		return nil, nil, err
	}
	machine, err := c.bringMachine(cluster, template)
	if err != nil {
		return nil, nil, err
	}
	if slices.Contains(manifest.Disks(machine.Spec), disk) {
		return nil, nil, typed(typeCloudError, "disk %s was attached to VM %s again while it was being detached", disk, vm)
	}
	return machine, template, c.endPod(cluster, attachment)
}

// restart makes the machine again as it is.
func (c *call) restart(cluster *kube.Client, machine *corev1.Pod) error {
	template, err := c.template(cluster, machine.Name)
	if err != nil {
		return err
	}
	if err := c.endPod(cluster, machine); err != nil {
		return err
	}
	_, err = c.bringUp(cluster, template)
	return err
}

// boot makes a machine's Pod that is missing, and waits until the machine is up.
func (c *call) boot(cluster *kube.Client, vm string) (*corev1.Pod, error) {
	template, err := c.template(cluster, vm)
	if err != nil {
		return nil, err
	}
	return c.bringUp(cluster, template)
}

// revive makes a machine's Pod that is missing, as after a call that was cut short or a drain. It does not
// wait for the machine.
func (c *call) revive(cluster *kube.Client, vm string) error {
	template, err := c.template(cluster, vm)
	if err != nil {
		return err
	}
	_, err = c.bringMachine(cluster, template)
	return err
}

// volumeOf answers the machine among whose own volumes the disk is, whatever has become of its attachment;
// "" when there is none.
func (c *call) volumeOf(cluster *kube.Client, claim *corev1.PersistentVolumeClaim) (string, error) {
	vm := claim.Annotations[manifest.AnnotationVM]
	if vm == "" {
		return "", nil
	}
	template, err := c.template(cluster, vm)
	if err == nil && slices.Contains(manifest.Disks(template.Template.Spec), claim.Name) {
		return vm, nil
	}
	if err != nil && !isVMNotFound(err) {
		return "", err
	}
	pod, err := cluster.Pods.Get(c.ctx, vm)
	if err == nil && slices.Contains(manifest.Disks(pod.Spec), claim.Name) {
		return vm, nil
	}
	if errors.Is(err, kube.ErrNotFound) {
		return "", nil
	}
	return "", err
}

// notVolumeOf refuses a disk that is among the own volumes of another machine than this one.
func (c *call) notVolumeOf(cluster *kube.Client, claim *corev1.PersistentVolumeClaim, but string) error {
	vm, err := c.volumeOf(cluster, claim)
	if err != nil || vm == "" || vm == but {
		return err
	}
	return attachedTo(claim.Name, vm)
}
