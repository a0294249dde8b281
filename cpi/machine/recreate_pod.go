package machine

import (
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// bringMachine makes the Pod of the template, in the place of one that has other disks or has ended. Before
// that each of its disks has its attachment: one that another machine has keeps the Pod from being made.
func (r recreate) bringMachine(template *corev1.PodTemplate) (*corev1.Pod, error) {
	wanted, err := r.wantedMachine(template)
	if err != nil {
		return nil, err
	}
	machine, _, err := r.Pods.Bring(r.Ctx, wanted, func(left *corev1.Pod) (bool, error) {
		if !kube.OwnedBy(left, template.UID) {
			return false, r.remove(left) // what an earlier try with another request left
		}
		now, err := r.Template(template.Name) // another call may have been faster
		if err != nil {
			return false, err
		}
		placed := left.Spec.NodeName != "" || manifest.RequiredNode(left) == manifest.RequiredNode(wanted)
		if kube.Runs(left) && placed && slices.Equal(manifest.Disks(left.Spec), manifest.Disks(now.Template.Spec)) {
			return true, nil
		}
		return false, r.End(left)
	})
	if err == nil {
		r.About(r.Pods.Reference(machine))
	}
	return machine, err
}

// wantedMachine returns the Pod of the template for the node where the machine's disks are, and attaches
// those that are not attached.
func (r recreate) wantedMachine(template *corev1.PodTemplate) (*corev1.Pod, error) {
	found, _, err := r.PodsOf(template.Name)
	if err != nil {
		return nil, err
	}
	pods := kube.Running(found.Items)
	attachments := call.Attachments(pods)
	node := kube.NodeOf(call.Machines(pods))
	if node == "" {
		if node, err = r.nodeOfDisks(attachments); err != nil {
			return nil, err
		}
	}
	wanted := manifest.Machine(template, node)
	if node == "" {
		attachments = nil
	}
	placed := wanted.DeepCopy()
	placed.Spec.NodeName = node
	return wanted, r.attachAll(placed, attachments)
}

// nodeOfDisks is where the disks of a machine that does not run are attached. Attachments on a node that is
// out of service are ended, so that the machine can be made elsewhere.
func (r recreate) nodeOfDisks(attachments []*corev1.Pod) (string, error) {
	node := kube.NodeOf(attachments)
	if node == "" {
		return "", nil
	}
	found, err := r.Nodes.List(r.Ctx, kube.Selection{Name: node})
	if err != nil {
		return "", err
	}
	off, err := call.NodeState(found.Items)
	if !off || err != nil {
		return node, err
	}
	for _, attachment := range attachments {
		if err := r.End(attachment); err != nil {
			return "", err
		}
	}
	return "", nil
}

// attachAll brings the attachments that the machine's disks lack.
func (r recreate) attachAll(machine *corev1.Pod, attachments []*corev1.Pod) error {
	for _, disk := range lacking(machine, attachments) {
		claim, err := r.disks().Claim(disk)
		if err != nil {
			return err
		}
		if _, _, _, err := r.ensureAttachment(claim, machine); err != nil {
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

// bringUp makes the Pod of the template and waits until the machine is up, with the disks and the addresses
// that it is to have.
func (r recreate) bringUp(template *corev1.PodTemplate) (*corev1.Pod, error) {
	for wait := kube.Turns(); ; wait(r.Ctx) {
		machine, err := r.bringMachine(template)
		if err != nil {
			return nil, err
		}
		err = r.awaitUp(machine, template)
		if !errors.Is(err, errReplaced) {
			return machine, err
		}
		if template, err = r.Template(template.Name); err != nil {
			return nil, err
		}
	}
}

// awaitUp waits until the machine is up, with the addresses that it had before.
func (r recreate) awaitUp(machine *corev1.Pod, template *corev1.PodTemplate) error {
	err := r.awaitBoot(machine)
	switch {
	case err == nil:
		return keptAddresses(machine, template)
	case errors.Is(err, errReplaced):
		return err
	}
	return call.CloudError.Wrap(call.Explained(err, "VM "+machine.Name+" did not come up again: "+r.Reported(machine)), false)
}

// keptAddresses fails when the machine is up with other addresses than it had.
func keptAddresses(machine *corev1.Pod, template *corev1.PodTemplate) error {
	had, has := template.Annotations[manifest.AnnotationAddresses], strings.Join(network.OfPod(machine), ",")
	if had == "" || has == "" || had == has {
		return nil
	}
	return call.CloudError.Errorf("VM %s had the address %s, and its new Pod has %s: disk_strategy: recreate needs a network plugin "+
		"that gives a Pod the address that it asks for; recreate the VM",
		machine.Name, had, has)
}
