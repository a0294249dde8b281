package vm

import (
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
)

// ensurePodFromTemplate creates the Pod of the PodTemplate, and replaces a Pod that has other disks or is finished. Before that, it
// creates the missing attachment Pods of the disks.
func (r recreateStrategy) ensurePodFromTemplate(template *corev1.PodTemplate) (manifest.VMPod, error) {
	desired, err := r.preparePod(template)
	if err != nil {
		return desired, err
	}
	pod, _, err := r.s.Pods.Ensure(r.s.Ctx, desired.Pod, func(existing *corev1.Pod) (bool, error) {
		if !kube.IsOwnedBy(existing, template.UID) || !kube.IsActive(existing) {
			return false, nil
		}
		current, err := r.s.GetPodTemplate(template.Name) // another call may have changed it
		if err != nil {
			return false, err
		}
		onRequiredNode := existing.Spec.NodeName != "" || manifest.RequiredNode(existing) == manifest.RequiredNode(desired.Pod)
		return onRequiredNode && slices.Equal(manifest.DiskCIDs(existing.Spec), manifest.DiskCIDs(current.Template.Spec)), nil
	}, func(existing *corev1.Pod) error {
		if !kube.IsOwnedBy(existing, template.UID) { // from an earlier attempt with another request
			return r.s.deleteVMAndWait(manifest.VMPod{Pod: existing})
		}
		return r.s.deletePodAndWait(manifest.VMPod{Pod: existing})
	})
	if err != nil {
		return manifest.VMPod{}, err
	}
	r.s.SetSubject(r.s.Pods.Reference(pod))
	return r.startPod(manifest.VMPod{Pod: pod})
}

// startPod removes the scheduling gate of a VM Pod with disks, if these are still the disks of the VM. Otherwise a late request created
// the Pod: startPod replaces it.
func (r recreateStrategy) startPod(vmPod manifest.VMPod) (manifest.VMPod, error) {
	if !vmPod.IsGated() {
		return vmPod, nil
	}
	template, err := r.s.GetPodTemplate(vmPod.Name)
	if err != nil {
		return vmPod, err
	}
	if !slices.Equal(vmPod.DiskCIDs(), manifest.DiskCIDs(template.Template.Spec)) {
		if err := r.s.deletePodAndWait(vmPod); err != nil {
			return vmPod, err
		}
		return r.ensurePodFromTemplate(template)
	}
	pod, err := r.s.Pods.Patch(r.s.Ctx, vmPod.Name, manifest.UngatePatch(vmPod.UID))
	if errors.Is(err, kube.ErrNotFound) || errors.Is(err, kube.ErrConflict) { // another call replaced the Pod
		return r.ensurePodFromTemplate(template)
	}
	return manifest.VMPod{Pod: pod}, err
}

// preparePod returns the Pod of the PodTemplate, for the node to which the VM's disks are attached, and creates the missing attachment
// Pods. It first removes disks of other VMs from the PodTemplate.
func (r recreateStrategy) preparePod(template *corev1.PodTemplate) (manifest.VMPod, error) {
	found, _, err := r.s.ListVMPods(template.Name)
	if err != nil {
		return manifest.VMPod{}, err
	}
	pods := slices.DeleteFunc(found.Items, func(pod *corev1.Pod) bool { return !kube.IsActive(pod) })
	attachments := manifest.AttachmentPods(pods)
	node, uid := r.previousNode, types.UID("")
	if vmPods := manifest.VMPods(pods); len(vmPods) > 0 {
		node, uid = vmPods[0].Spec.NodeName, vmPods[0].UID
	}
	if node == "" {
		if node, err = r.resolveDiskNode(attachments); err != nil {
			return manifest.VMPod{}, err
		}
	}
	desired := manifest.PodFromTemplate(template, node)
	if node == "" {
		attachments = nil
	}
	scheduled := manifest.VMPod{Pod: desired.DeepCopy()}
	scheduled.Spec.NodeName, scheduled.UID = node, uid
	diskOfOtherVM, err := r.ensureAttachments(scheduled, attachments)
	if diskOfOtherVM == "" || err != nil {
		return desired, err
	}
	if template, err = r.removeDiskOfOtherVM(template.Name, diskOfOtherVM); err != nil {
		return desired, err
	}
	return r.preparePod(template)
}

// removeDiskOfOtherVM removes a disk from the PodTemplate that another VM owns. The owner record decides which VM has a disk. An
// interrupted attach_disk adds the disk later if its request is delayed, and nothing else changed the PodTemplate in the meantime.
func (r recreateStrategy) removeDiskOfOtherVM(vmCID, diskCID string) (*corev1.PodTemplate, error) {
	r.s.Log.Warn("the PodTemplate has a disk of another VM; removing it", "disk", diskCID, "vm", vmCID)
	return r.changeTemplate(vmCID, func(*corev1.PodTemplate) (change manifest.TemplateChange, err error) {
		pvc, err := r.s.diskSession().GetPVC(diskCID)
		if err == nil && isOfOtherVM(pvc, vmCID) {
			change.RemoveDisk = diskCID
		}
		return change, err
	})
}

// isOfOtherVM reports whether another VM owns the disk.
func isOfOtherVM(pvc manifest.DiskPVC, vmCID string) bool {
	owner, ok := pvc.Owner()
	return ok && owner.VM != "" && owner.VM != vmCID
}

// resolveDiskNode returns the node to which the disks of a VM without a running Pod are attached, or "". If that node is out of service,
// it deletes the attachment Pods, so that the VM Pod can run on another node.
func (r recreateStrategy) resolveDiskNode(attachments []manifest.AttachmentPod) (string, error) {
	i := slices.IndexFunc(attachments, func(attachment manifest.AttachmentPod) bool { return attachment.Spec.NodeName != "" })
	if i < 0 {
		return "", nil
	}
	node := attachments[i].Spec.NodeName
	found, err := r.s.Nodes.List(r.s.Ctx, kube.Selection{Name: node})
	if err != nil {
		return "", err
	}
	outOfService, err := call.NodeOutOfService(found.Items)
	if !outOfService || err != nil {
		return node, err
	}
	for _, attachment := range attachments {
		if err := r.s.DeletePodAndWait(attachment.Pod); err != nil {
			return "", err
		}
	}
	return "", nil
}

// ensureAttachments creates the missing attachment Pods of the VM's disks. It stops at a disk of another VM, and returns its CID.
func (r recreateStrategy) ensureAttachments(vmPod manifest.VMPod, attachments []manifest.AttachmentPod) (diskOfOtherVM string, err error) {
	for _, diskCID := range unattachedDisks(vmPod, attachments) {
		pvc, err := r.s.diskSession().GetPVC(diskCID)
		if err != nil {
			return "", err
		}
		if isOfOtherVM(pvc, vmPod.Name) {
			return diskCID, nil
		}
		if _, _, _, err := r.s.ensureAttachment(pvc, vmPod); err != nil {
			return "", err
		}
	}
	return "", nil
}

// unattachedDisks returns the CIDs of the disks among the volumes of the VM Pod that have no attachment Pod, or a finished one.
func unattachedDisks(vmPod manifest.VMPod, attachments []manifest.AttachmentPod) []string {
	return slices.DeleteFunc(vmPod.DiskCIDs(), func(diskCID string) bool {
		return slices.ContainsFunc(attachments, func(attachment manifest.AttachmentPod) bool {
			return attachment.Disk() == diskCID && !disk.StateOf(attachment).HasEnded()
		})
	})
}

// ensurePodReady creates the Pod of the PodTemplate if necessary, and waits for the VM to boot with its disks and addresses. If
// another call replaces the Pod in the meantime, ensurePodReady waits for the new Pod.
func (r recreateStrategy) ensurePodReady(template *corev1.PodTemplate) (manifest.VMPod, error) {
	for wait := kube.NewConflictBackoff(); ; wait(r.s.Ctx) {
		vmPod, err := r.ensurePodFromTemplate(template)
		if err != nil {
			return vmPod, err
		}
		err = r.waitUntilReady(vmPod, template)
		if !errors.Is(err, errPodDeleted) {
			return vmPod, err
		}
		if template, err = r.s.GetPodTemplate(template.Name); err != nil {
			return vmPod, err
		}
	}
}

// waitUntilReady waits for the VM to boot, and checks that it has the same addresses as before.
func (r recreateStrategy) waitUntilReady(vmPod manifest.VMPod, template *corev1.PodTemplate) error {
	err := r.s.waitForBoot(vmPod)
	switch {
	case err == nil:
		return checkAddressesUnchanged(vmPod, template)
	case errors.Is(err, errPodDeleted):
		return err
	}
	message := "VM " + vmPod.Name + " did not start after its Pod was recreated: " + r.s.DiagnosePod(vmPod.Pod)
	return call.CodeVMRecreateFailed.Wrap(call.WithMessage(err, message), false)
}

// checkAddressesUnchanged fails if the Pod has other addresses than the VM's first Pod.
func checkAddressesUnchanged(vmPod manifest.VMPod, template *corev1.PodTemplate) error {
	previous, current := manifest.FirstPodAddressesOf(template), strings.Join(network.PodAddresses(vmPod), ",")
	if previous == "" || current == "" || previous == current {
		return nil
	}
	return call.CodeVMAddressChanged.Errorf("VM %s had address %s, but its new Pod has %s; disk_strategy: recreate requires a network plugin "+
		"that assigns requested addresses; recreate the VM", vmPod.Name, previous, current)
}
