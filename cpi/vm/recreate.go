package vm

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

// recreateStrategy is the strategy of machines that get and lose a disk with their Pod, which is made again: for
// runtime classes that keep the node's devices out. A machine's PodTemplate says how its Pod is to be, and is
// changed before the Pod is ended; whatever call comes next makes the Pod that is missing. A disk's
// attachment is there before the machine has the disk, and goes after the machine has lost it: it is the
// record of what is attached, as for any machine, and proves beforehand that the volume can be had.
type recreateStrategy struct{ *Session }

// validateNetworks refuses networks on which the next Pod could not have the address of this one.
func (r recreateStrategy) validateNetworks(networks network.Networks) error {
	if networks.HasDynamicAddress() && !r.Network.KeepDynamicAddresses {
		return call.Invalid("cloud_properties.disk_strategy: recreate needs a manual network, or network.keep_dynamic_addresses: " +
			"the VM's Pod is made again for each disk, and would get another address")
	}
	return nil
}

// validateDisk refuses a disk that cannot be a volume of a machine's own Pod.
func (recreateStrategy) validateDisk(pvc *corev1.PersistentVolumeClaim, vmPod *corev1.Pod) error {
	switch {
	case manifest.VolumeMode(pvc) == corev1.PersistentVolumeFilesystem && !manifest.IsDirectory(pvc):
		return call.NotSupported.Errorf("disk %s cannot be attached to VM %s: it is an image file on a Filesystem claim, "+
			"which needs a loop device of the node, and the VM has disk_strategy: recreate. "+
			"Such a VM takes disks with volume_mode: Block or attach: bind", pvc.Name, vmPod.Name)
	case slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteOncePod):
		return call.NotSupported.Errorf("disk %s cannot be attached to VM %s: the VM has disk_strategy: recreate, "+
			"where its Pod and the disk's attachment both use the claim, which its access mode ReadWriteOncePod forbids",
			pvc.Name, vmPod.Name)
	}
	return nil
}

// ensurePod makes what such a machine is made from, and its Pod. When there is no Pod in the end, the
// rest goes too.
func (r recreateStrategy) ensurePod(vm manifest.VM) (*corev1.Pod, error) {
	template, err := r.ensureTemplate(vm)
	if err != nil {
		return nil, err
	}
	var pod *corev1.Pod
	if err = r.ensureEphemeralDiskPVC(vm, template); err == nil {
		pod, err = r.ensurePodFromTemplate(template)
	}
	if err == nil && !r.Owns(pod) {
		pod, err = r.adoptPod(pod)
	}
	if err == nil {
		return pod, nil
	}
	cleanup, cancel := r.detached()
	defer cancel()
	_, cleanupErr := recreateStrategy{cleanup}.removeTemplateIfOwned(template)
	return nil, errors.Join(err, cleanupErr)
}

// adoptPod makes the Pod this call's own, whatever others report of it meanwhile.
func (r recreateStrategy) adoptPod(pod *corev1.Pod) (*corev1.Pod, error) {
	patch, err := manifest.AnnotatePod(pod, map[string]string{manifest.AnnotationCall: r.ID()})
	if err != nil {
		return nil, err
	}
	return r.Pods.Patch(r.Ctx, pod.Name, patch)
}

// ensureTemplate creates the machine's PodTemplate, or adopts the one of an earlier try with the same request; one with
// another request is replaced.
func (r recreateStrategy) ensureTemplate(vm manifest.VM) (*corev1.PodTemplate, error) {
	template, _, err := call.EnsureOwned(
		r.Call,
		r.PodTemplates,
		vm.PodTemplate(),
		call.AdoptIf(func(existing *corev1.PodTemplate) (bool, error) {
			if existing.DeletionTimestamp == nil && existing.Annotations[manifest.AnnotationDigest] == vm.Digest {
				return true, nil
			}
			return false, r.removeVMAndTemplate(existing)
		}),
	)
	return template, err
}

// removeTemplateIfOwned removes what a create_vm that fails has made, unless a repeated one has adopted it. Without the
// template no call creates the Pod again.
func (r recreateStrategy) removeTemplateIfOwned(template *corev1.PodTemplate) (deleted bool, err error) {
	deleted, err = call.DeleteIfOwned(r.Call, r.PodTemplates, template, call.NeverKeep)
	if !deleted || err != nil {
		return deleted, err
	}
	pod, err := r.Pods.Get(r.Ctx, template.Name)
	if errors.Is(err, kube.ErrNotFound) || err == nil && !kube.OwnedBy(pod, template.UID) {
		return true, r.PodTemplates.WaitDeleted(r.Ctx, template)
	}
	if err != nil {
		return true, err
	}
	return true, r.removeVM(pod)
}

// ensureEphemeralDiskPVC makes the claim of the machine's own storage.
func (r recreateStrategy) ensureEphemeralDiskPVC(vm manifest.VM, template *corev1.PodTemplate) error {
	_, _, err := r.PVCs.Ensure(r.Ctx, vm.EphemeralPVC(template), func(existing *corev1.PersistentVolumeClaim) (bool, error) {
		if existing.DeletionTimestamp == nil && kube.OwnedBy(existing, template.UID) {
			return true, nil
		}
		return false, r.PVCs.DeleteAndWait(r.Ctx, existing)
	})
	return err
}

// removeVMAndTemplate ends the machine, and removes what it was made from; the garbage collector does the rest.
func (r recreateStrategy) removeVMAndTemplate(template *corev1.PodTemplate) error {
	pod, err := r.Pods.Get(r.Ctx, template.Name)
	if err == nil {
		return r.removeVM(pod)
	}
	if !errors.Is(err, kube.ErrNotFound) {
		return err
	}
	return r.PodTemplates.DeleteAndWait(r.Ctx, template)
}

// templateOf is the PodTemplate, without its content.
func (recreateStrategy) templateOf(vmPod *corev1.Pod) *corev1.PodTemplate {
	return &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: vmPod.Name, UID: manifest.OwnerReference(vmPod).UID}}
}

func (recreateStrategy) keepsPod(pod *corev1.Pod) bool { return kube.IsActive(pod) }

func (recreateStrategy) hasAllAttachments(vmPod *corev1.Pod, attachments []*corev1.Pod) bool {
	return len(unattachedDisks(vmPod, attachments)) == 0
}

// ensureScheduled waits for a machine that was just made again, which may not have its node yet.
func (r recreateStrategy) ensureScheduled(vmPod *corev1.Pod) (*corev1.Pod, error) {
	if vmPod.Spec.NodeName != "" {
		return vmPod, nil
	}
	return r.ensureVMReady(vmPod.Name)
}

// restoreAndListDisks are those that have attachments: whole has seen to it that it is all.
func (recreateStrategy) restoreAndListDisks(_ *corev1.Pod, attachments []*corev1.Pod) ([]string, error) {
	return diskCIDs(attachments), nil
}

// restoreAttachment makes the machine's Pod again if it is missing, and with it what is missing beside it.
func (r recreateStrategy) restoreAttachment(vmCID, _ string) error { return r.ensureVMPod(vmCID) }

// persistMetadata puts the metadata into the template.
func (r recreateStrategy) persistMetadata(pod *corev1.Pod, metadata manifest.Metadata) error {
	_, err := r.patchTemplate(pod.Name, manifest.TemplateChange{Metadata: &metadata})
	return err
}

// persistAddresses lets each Pod of the machine ask for the addresses of the first, and writes them down.
func (r recreateStrategy) persistAddresses(pod *corev1.Pod, annotations map[string]string) error {
	template, err := r.GetPodTemplate(pod.Name)
	if err != nil {
		return err
	}
	_, err = r.patchTemplate(pod.Name, manifest.TemplateChange{
		Addresses: network.PodAddresses(pod),
		Metadata:  &manifest.Metadata{Annotations: missingAnnotations(annotations, template.Template.Annotations)},
	})
	return err
}

// patchTemplate stores how the machine is to be from now on.
func (r recreateStrategy) patchTemplate(vmCID string, change manifest.TemplateChange) (*corev1.PodTemplate, error) {
	patch, err := change.Patch()
	if err != nil {
		return nil, err
	}
	template, err := r.PodTemplates.Patch(r.Ctx, vmCID, patch)
	if errors.Is(err, kube.ErrNotFound) {
		return nil, call.NoVM(vmCID)
	}
	return template, err
}

// exposeDisk makes the machine again with the disk, which is attached. When that fails for a disk that this
// call has attached, the machine is made again without it, and has the time that an attachment has to come up again.
func (r recreateStrategy) exposeDisk(pvc *corev1.PersistentVolumeClaim, vmPod, attachment *corev1.Pod, owned bool) error {
	template, err := r.patchTemplate(vmPod.Name, manifest.TemplateChange{AddDisk: pvc})
	if err != nil {
		return err
	}
	vmPod, err = r.ensurePodReady(template)
	if err == nil {
		_, _, _, err := r.ensureAttachment(pvc, vmPod) // a detach_disk may have ended it meanwhile
		return err
	}
	if !owned {
		return err
	}
	cleanup, cancel := r.detachedFor(r.AttachTimeout)
	defer cancel()
	now, getErr := cleanup.Pods.Get(cleanup.Ctx, attachment.Name)
	if getErr == nil && now.UID == attachment.UID && !r.Owns(now) {
		return err // a repeated call has adopted it
	}
	return errors.Join(err, recreateStrategy{cleanup}.removeDiskAndWait(template.Name, attachment))
}

// detachDisk makes the machine again without the disk, ends the attachment, and waits until the machine is up.
// A disk that is in use is let go by the machine as at its shutdown.
func (r recreateStrategy) detachDisk(vmCID string, attachment *corev1.Pod) error {
	if _, err := r.PodNodeOutOfService(attachment); err != nil {
		return err
	}
	err := r.removeDiskAndWait(vmCID, attachment)
	if errors.Is(err, errPodDeleted) {
		return nil // another call waits for its successor
	}
	return err
}

// removeDiskAndWait is withdraw, and waits until the machine is up.
func (r recreateStrategy) removeDiskAndWait(vmCID string, attachment *corev1.Pod) error {
	vmPod, template, err := r.removeDisk(vmCID, attachment)
	if err != nil {
		return err
	}
	return r.waitUntilReady(vmPod, template)
}

// removeDisk makes the machine's Pod again without the disk, which is free once there is one, and ends the
// attachment.
func (r recreateStrategy) removeDisk(vmCID string, attachment *corev1.Pod) (*corev1.Pod, *corev1.PodTemplate, error) {
	diskCID := attachment.Labels[manifest.LabelDisk]
	template, err := r.patchTemplate(vmCID, manifest.TemplateChange{RemoveDisk: diskCID})
	if err != nil {
		return nil, nil, err
	}
	vmPod, err := r.ensurePodFromTemplate(template)
	if err != nil {
		return nil, nil, err
	}
	if slices.Contains(manifest.DiskCIDs(vmPod.Spec), diskCID) {
		return nil, nil, call.CloudError.Errorf("disk %s was attached to VM %s again while it was being detached", diskCID, vmCID)
	}
	if err := r.DeletePodAndWait(attachment); err != nil {
		return nil, nil, err
	}
	_, err = r.diskSession().Release(diskCID, ownerRecord(attachment))
	return vmPod, template, err
}

// restartVM makes the machine again as it is.
func (r recreateStrategy) restartVM(vmPod *corev1.Pod) error {
	if err := r.CheckNodeAvailable(vmPod); err != nil {
		return err
	}
	template, err := r.GetPodTemplate(vmPod.Name)
	if err != nil {
		return err
	}
	if err := r.DeletePodAndWait(vmPod); err != nil {
		return err
	}
	_, err = r.ensurePodReady(template)
	return err
}

// ensureVMReady makes a machine's Pod that is missing, and waits until the machine is up.
func (r recreateStrategy) ensureVMReady(vmCID string) (*corev1.Pod, error) {
	template, err := r.GetPodTemplate(vmCID)
	if err != nil {
		return nil, err
	}
	return r.ensurePodReady(template)
}

// ensureVMPod makes a machine's Pod that is missing, as after a call that was cut short or a drain. It does not
// wait for the machine.
func (r recreateStrategy) ensureVMPod(vmCID string) error {
	template, err := r.GetPodTemplate(vmCID)
	if err != nil {
		return err
	}
	_, err = r.ensurePodFromTemplate(template)
	return err
}
