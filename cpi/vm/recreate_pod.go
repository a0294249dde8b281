package vm

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

// ensurePodFromTemplate makes the Pod of the template, in the place of one that has other disks or has ended. Before
// that each of its disks has its attachment: one that another machine has keeps the Pod from being made.
func (r recreateStrategy) ensurePodFromTemplate(template *corev1.PodTemplate) (*corev1.Pod, error) {
	desired, err := r.preparePod(template)
	if err != nil {
		return nil, err
	}
	vmPod, _, err := r.Pods.Ensure(r.Ctx, desired, func(existing *corev1.Pod) (bool, error) {
		if !kube.OwnedBy(existing, template.UID) {
			return false, r.removeVM(existing) // what an earlier try with another request left
		}
		now, err := r.GetPodTemplate(template.Name) // another call may have been faster
		if err != nil {
			return false, err
		}
		onRequiredNode := existing.Spec.NodeName != "" || manifest.RequiredNode(existing) == manifest.RequiredNode(desired)
		if kube.IsActive(existing) && onRequiredNode && slices.Equal(manifest.DiskCIDs(existing.Spec), manifest.DiskCIDs(now.Template.Spec)) {
			return true, nil
		}
		return false, r.DeletePodAndWait(existing)
	})
	if err == nil {
		r.SetSubject(r.Pods.Reference(vmPod))
	}
	return vmPod, err
}

// preparePod returns the Pod of the template for the node where the machine's disks are, and attaches
// those that are not attached.
func (r recreateStrategy) preparePod(template *corev1.PodTemplate) (*corev1.Pod, error) {
	found, _, err := r.ListVMPods(template.Name)
	if err != nil {
		return nil, err
	}
	pods := kube.ActivePods(found.Items)
	attachments := call.AttachmentPods(pods)
	node := kube.NodeOf(call.VMPods(pods))
	if node == "" {
		if node, err = r.resolveDiskNode(attachments); err != nil {
			return nil, err
		}
	}
	desired := manifest.PodFromTemplate(template, node)
	if node == "" {
		attachments = nil
	}
	scheduled := desired.DeepCopy()
	scheduled.Spec.NodeName = node
	return desired, r.ensureAttachments(scheduled, attachments)
}

// resolveDiskNode is where the disks of a machine that does not run are attached. Attachments on a node that is
// out of service are ended, so that the machine can be made elsewhere.
func (r recreateStrategy) resolveDiskNode(attachments []*corev1.Pod) (string, error) {
	node := kube.NodeOf(attachments)
	if node == "" {
		return "", nil
	}
	found, err := r.Nodes.List(r.Ctx, kube.Selection{Name: node})
	if err != nil {
		return "", err
	}
	outOfService, err := call.NodeOutOfService(found.Items)
	if !outOfService || err != nil {
		return node, err
	}
	for _, attachment := range attachments {
		if err := r.DeletePodAndWait(attachment); err != nil {
			return "", err
		}
	}
	return "", nil
}

// ensureAttachments brings the attachments that the machine's disks lack.
func (r recreateStrategy) ensureAttachments(vmPod *corev1.Pod, attachments []*corev1.Pod) error {
	for _, diskCID := range unattachedDisks(vmPod, attachments) {
		pvc, err := r.diskSession().GetPVC(diskCID)
		if err != nil {
			return err
		}
		if _, _, _, err := r.ensureAttachment(pvc, vmPod); err != nil {
			return err
		}
	}
	return nil
}

// unattachedDisks are the disks among the machine's own volumes that have no attachment.
func unattachedDisks(vmPod *corev1.Pod, attachments []*corev1.Pod) []string {
	return slices.DeleteFunc(manifest.DiskCIDs(vmPod.Spec), func(diskCID string) bool {
		return slices.ContainsFunc(attachments, func(pod *corev1.Pod) bool { return pod.Labels[manifest.LabelDisk] == diskCID })
	})
}

// ensurePodReady makes the Pod of the template and waits until the machine is up, with the disks and the addresses
// that it is to have.
func (r recreateStrategy) ensurePodReady(template *corev1.PodTemplate) (*corev1.Pod, error) {
	for wait := kube.NewConflictBackoff(); ; wait(r.Ctx) {
		vmPod, err := r.ensurePodFromTemplate(template)
		if err != nil {
			return nil, err
		}
		err = r.waitUntilReady(vmPod, template)
		if !errors.Is(err, errPodDeleted) {
			return vmPod, err
		}
		if template, err = r.GetPodTemplate(template.Name); err != nil {
			return nil, err
		}
	}
}

// waitUntilReady waits until the machine is up, with the addresses that it had before.
func (r recreateStrategy) waitUntilReady(vmPod *corev1.Pod, template *corev1.PodTemplate) error {
	err := r.waitForBoot(vmPod)
	switch {
	case err == nil:
		return checkAddressesUnchanged(vmPod, template)
	case errors.Is(err, errPodDeleted):
		return err
	}
	return call.CloudError.Wrap(call.WithMessage(err, "VM "+vmPod.Name+" did not come up again: "+r.DiagnosePod(vmPod)), false)
}

// checkAddressesUnchanged fails when the machine is up with other addresses than it had.
func checkAddressesUnchanged(vmPod *corev1.Pod, template *corev1.PodTemplate) error {
	previous, current := template.Annotations[manifest.AnnotationFirstPodAddresses], strings.Join(network.PodAddresses(vmPod), ",")
	if previous == "" || current == "" || previous == current {
		return nil
	}
	return call.CloudError.Errorf("VM %s had the address %s, and its new Pod has %s: disk_strategy: recreate needs a network plugin "+
		"that gives a Pod the address that it asks for; recreate the VM",
		vmPod.Name, previous, current)
}
