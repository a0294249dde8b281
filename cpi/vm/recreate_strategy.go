package vm

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// recreateStrategy attaches and detaches a disk by recreating the VM Pod. It is for runtime classes that isolate a VM from the devices of
// its node.
//
// The VM's PodTemplate is the desired state. A call changes it before it deletes the Pod, and any later call recreates a missing
// Pod from it. The attachment Pod of a disk is created before the VM Pod gets the disk, and deleted after the VM Pod loses it. It
// records which disks are attached, as for other VMs, and it shows that the node can attach the volume before the VM Pod is
// deleted.
type recreateStrategy struct {
	s            *Session
	previousNode string // of a VM Pod that was deleted, or ""
}

// validateDisk rejects a disk that cannot be a volume of the VM Pod, a disk with an image file, and a second disk if one of the two is a
// directory. The director attaches a second disk to migrate the data of the first, and the agent would fail only in the middle of the
// migration. It also fails if another disk of the VM is being deleted.
func (r recreateStrategy) validateDisk(pvc manifest.DiskPVC, vmPod manifest.VMPod, attachments []manifest.AttachmentPod) error {
	isDirectory := pvc.VolumeMode() == corev1.PersistentVolumeFilesystem
	switch {
	case slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteOncePod):
		return call.CodeDiskAttachUnsupported.Errorf("cannot attach disk %s to VM %s: with disk_strategy: recreate the VM Pod and the "+
			"attachment Pod both use the PVC, which its access mode ReadWriteOncePod forbids; use access_modes: [ReadWriteOnce]",
			pvc.Name, vmPod.Name)
	case isDirectory && pvc.IsFormatted() && !pvc.HasDirectory():
		return call.CodeDiskAttachUnsupported.Errorf("cannot attach disk %s to VM %s: the disk is an image file on its Filesystem volume, "+
			"which a VM with disk_strategy: recreate cannot use; attach it to a VM without disk_strategy: recreate, or create another disk",
			pvc.Name, vmPod.Name)
	}
	for _, other := range attachments {
		diskCID := other.Disk()
		if diskCID != pvc.Name && (isDirectory || other.IsDirectory()) && !disk.StateOf(other).HasExited() {
			return call.CodeDiskAttachUnsupported.Errorf("cannot attach disk %s to VM %s: disk %s is attached, and the agent cannot migrate "+
				"data from or to a Filesystem disk of a VM with disk_strategy: recreate; use volume_mode: Block, or restore the data from a backup",
				pvc.Name, vmPod.Name, diskCID)
		}
	}
	template, err := r.s.GetPodTemplate(vmPod.Name)
	if err != nil {
		return err
	}
	return r.checkDisks(template, pvc.Name)
}

// ensurePod creates the VM's PodTemplate, its ephemeral PVC and its Pod, or adopts those of an earlier attempt with the same request. It
// replaces the VM of an attempt with another request. If it fails, it deletes the objects that it created.
func (r recreateStrategy) ensurePod(vm manifest.VM) (manifest.VMPod, error) {
	template, _, err := call.EnsureOwned(r.s.Call, r.s.PodTemplates, vm.PodTemplate(), func(existing *corev1.PodTemplate) call.Decision {
		return call.AdoptIf(existing.DeletionTimestamp == nil && manifest.DigestOf(existing) == vm.Digest)
	}, r.removeVMAndTemplate)
	if template == nil {
		return manifest.VMPod{}, err
	}
	var vmPod manifest.VMPod
	if err == nil {
		err = r.ensureEphemeralDiskPVC(vm, template)
	}
	if err == nil {
		vmPod, err = r.ensurePodFromTemplate(template)
	}
	if err == nil && !r.s.Owns(vmPod) { // this call becomes the owner, even if the Pod changed since it was read
		patch := manifest.PodAnnotationsPatch(vmPod, map[string]string{manifest.AnnotationCall: r.s.ID})
		vmPod.Pod, err = r.s.Pods.Patch(r.s.Ctx, vmPod.Name, patch)
	}
	if err == nil {
		return vmPod, nil
	}
	cleanup, cancel := r.s.detached(call.CleanupTimeout)
	defer cancel()
	_, cleanupErr := recreateStrategy{s: cleanup}.removeTemplateIfOwned(template)
	return manifest.VMPod{}, errors.Join(err, cleanupErr)
}

// removeTemplateIfOwned deletes the PodTemplate and the Pod of a failed create_vm, unless a retried call adopted the PodTemplate.
// Without the PodTemplate, no call recreates the Pod.
func (r recreateStrategy) removeTemplateIfOwned(template *corev1.PodTemplate) (deleted bool, err error) {
	deletion, err := call.DeleteIfOwned(r.s.Call, r.s.PodTemplates, template, call.NeverKeep)
	if deletion == call.Kept || err != nil {
		return false, err
	}
	pod, err := r.s.Pods.Get(r.s.Ctx, template.Name)
	if errors.Is(err, kube.ErrNotFound) || err == nil && !kube.IsOwnedBy(pod, template.UID) {
		return true, r.s.PodTemplates.WaitDeleted(r.s.Ctx, template)
	}
	if err != nil {
		return true, err
	}
	return true, r.s.deleteVMAndWait(manifest.VMPod{Pod: pod})
}

// ensureEphemeralDiskPVC creates the PVC of the VM's ephemeral disk.
func (r recreateStrategy) ensureEphemeralDiskPVC(vm manifest.VM, template *corev1.PodTemplate) error {
	_, _, err := r.s.PVCs.Ensure(r.s.Ctx, vm.EphemeralPVC(template), func(existing *corev1.PersistentVolumeClaim) (bool, error) {
		return existing.DeletionTimestamp == nil && kube.IsOwnedBy(existing, template.UID), nil
	}, func(existing *corev1.PersistentVolumeClaim) error { return r.s.PVCs.DeleteAndWait(r.s.Ctx, existing) })
	return err
}

// removeVMAndTemplate deletes the PodTemplate and, if it exists, the VM Pod. The garbage collector deletes the objects that the
// PodTemplate owns.
func (r recreateStrategy) removeVMAndTemplate(template *corev1.PodTemplate) error {
	pod, err := r.s.Pods.Get(r.s.Ctx, template.Name)
	if err == nil {
		return r.s.deleteVMAndWait(manifest.VMPod{Pod: pod})
	}
	if !errors.Is(err, kube.ErrNotFound) {
		return err
	}
	return r.s.PodTemplates.DeleteAndWait(r.s.Ctx, template)
}

// restoreAndListDisks returns the disks of the attachment Pods. None is missing: see getWithAttachments.
func (recreateStrategy) restoreAndListDisks(_ manifest.VMPod, attachments []manifest.AttachmentPod) ([]string, error) {
	disks := []string{}
	for _, attachment := range attachments {
		disks = append(disks, attachment.Disk())
	}
	return disks, nil
}

// persist makes the change in the VM's PodTemplate. If it has the addresses of the VM's first Pod, its annotations do not replace existing
// ones, which an operator may have set.
func (r recreateStrategy) persist(vmPod manifest.VMPod, change manifest.TemplateChange) error {
	_, err := r.changeTemplate(vmPod.Name, func(current *corev1.PodTemplate) (manifest.TemplateChange, error) {
		if !kube.IsOwnedBy(vmPod.Pod, current.UID) { // the PodTemplate of another attempt of create_vm
			return change, call.VMNotFoundError(vmPod.Name)
		}
		merged := change
		if len(change.Addresses) > 0 {
			merged.Metadata = &manifest.Metadata{Annotations: missingAnnotations(change.Metadata.Annotations, current.Template.Annotations)}
		}
		return merged, nil
	})
	return err
}

// changeTemplate makes the change that decide returns for the current PodTemplate of the VM, and returns the changed PodTemplate. If
// another call changes the PodTemplate in the meantime, changeTemplate reads it and decides again. It does so, too, if the response to
// its own request is lost, and then sends the change once more.
func (r recreateStrategy) changeTemplate(
	vmCID string, decide func(current *corev1.PodTemplate) (manifest.TemplateChange, error)) (*corev1.PodTemplate, error) {

	for pause := kube.NewConflictBackoff(); ; {
		current, err := r.s.GetPodTemplate(vmCID)
		if err != nil {
			return nil, err
		}
		change, err := decide(current)
		if err != nil {
			return nil, err
		}
		changed, err := r.s.PodTemplates.Patch(r.s.Ctx, vmCID, change.Patch(current))
		if !errors.Is(err, kube.ErrConflict) && !errors.Is(err, kube.ErrNotFound) {
			return changed, err
		}
		if !pause(r.s.Ctx) {
			return nil, err
		}
	}
}

// publishDisk recreates the VM Pod with the disk, which has an attachment Pod. If that fails and this call owns the attachment Pod,
// publishDisk recreates the VM Pod without the disk. That may take as long as an attachment.
func (r recreateStrategy) publishDisk(pvc manifest.DiskPVC, vmPod manifest.VMPod, attachment manifest.AttachmentPod, owned bool) error {
	template, err := r.changeTemplate(vmPod.Name, func(*corev1.PodTemplate) (_ manifest.TemplateChange, err error) {
		pvc, err = r.getOwnedPVC(attachment)
		return manifest.TemplateChange{AddDisk: pvc}, err
	})
	if err != nil {
		return err
	}
	vmPod, err = r.ensurePodReady(template)
	switch {
	case err == nil && !slices.Contains(vmPod.DiskCIDs(), pvc.Name):
		return detachedError(pvc.Name)
	case err == nil:
		_, _, _, err := r.s.ensureAttachment(pvc, vmPod) // another client may have deleted it
		return err
	}
	if !owned {
		return err
	}
	cleanup, cancel := r.s.detached(r.s.AttachTimeout)
	defer cancel()
	current, getErr := cleanup.Pods.Get(cleanup.Ctx, attachment.Name)
	if getErr == nil && current.UID == attachment.UID && !r.s.Owns(current) {
		return err // a retried call adopted it
	}
	return errors.Join(err, recreateStrategy{s: cleanup}.removeDisk(template.Name, attachment))
}

// getOwnedPVC returns the PVC of the attachment Pod's disk. It fails if the Pod no longer owns the disk, or if another call owns the Pod,
// which may be a detach_disk that deletes it next.
func (r recreateStrategy) getOwnedPVC(attachment manifest.AttachmentPod) (manifest.DiskPVC, error) {
	pvc, err := r.s.diskSession().GetPVC(attachment.Disk())
	if err != nil {
		return pvc, err
	}
	current, err := r.s.Pods.Get(r.s.Ctx, attachment.Name)
	isOfOtherCall := err == nil && current.UID == attachment.UID && !r.s.Owns(current)
	if owner, _ := pvc.Owner(); owner != attachment.OwnerRecord() || isOfOtherCall {
		return pvc, detachedError(pvc.Name)
	}
	return pvc, kube.IgnoreNotFound(err)
}

func detachedError(diskCID string) error {
	return call.CodeDiskBusy.Errorf("cannot attach disk %s: it was detached by a concurrent call; retry", diskCID)
}

// detachDisk recreates the VM Pod without the disk, deletes the attachment Pod, and waits for the VM to boot. It accepts a disk
// that is in use: the VM stops using it when it shuts down.
func (r recreateStrategy) detachDisk(vmCID string, attachment manifest.AttachmentPod) error {
	if _, err := r.s.PodNodeOutOfService(attachment.Pod); err != nil {
		return err
	}
	template, err := r.s.GetPodTemplate(vmCID)
	if err != nil {
		return err
	}
	if err := r.checkDisks(template, attachment.Disk()); err != nil {
		return err
	}
	if err := r.adoptAttachment(attachment); err != nil {
		return err
	}
	err = r.removeDisk(vmCID, attachment)
	if errors.Is(err, errPodDeleted) {
		return nil // another call replaced the Pod, and waits for the new one
	}
	return err
}

// adoptAttachment makes this call the owner of the attachment Pod, unless it is gone. A concurrent attach_disk that adopts the Pod later
// keeps it from being deleted.
func (r recreateStrategy) adoptAttachment(attachment manifest.AttachmentPod) error {
	for pause := kube.NewConflictBackoff(); ; {
		current, err := r.s.Pods.Get(r.s.Ctx, attachment.Name)
		if err != nil || current.UID != attachment.UID || r.s.Owns(current) {
			return kube.IgnoreNotFound(err)
		}
		_, err = r.s.Pods.Patch(r.s.Ctx, attachment.Name, manifest.AdoptPatch(current, r.s.ID))
		if !errors.Is(err, kube.ErrConflict) && !errors.Is(err, kube.ErrNotFound) || !pause(r.s.Ctx) {
			return err
		}
	}
}

// removeDisk recreates the VM Pod without the disk, which is free once the new Pod exists. Then it deletes the attachment Pod, which this
// call owns, releases the disk, and waits for the VM to boot.
func (r recreateStrategy) removeDisk(vmCID string, attachment manifest.AttachmentPod) error {
	diskCID := attachment.Disk()
	template, err := r.changeTemplate(vmCID, func(*corev1.PodTemplate) (manifest.TemplateChange, error) {
		return manifest.TemplateChange{RemoveDisk: diskCID}, r.checkNotAttachedAgain(attachment)
	})
	if err != nil {
		return err
	}
	vmPod, err := r.ensurePodFromTemplate(template)
	if err != nil {
		return err
	}
	if slices.Contains(vmPod.DiskCIDs(), diskCID) {
		return attachedAgainError(attachment)
	}
	deletion, err := r.s.DeletePodIfOwned(attachment.Pod, call.NeverKeep)
	if err != nil {
		return err
	}
	if deletion == call.Kept {
		return attachedAgainError(attachment)
	}
	if _, err := r.s.diskSession().Release(diskCID, attachment.OwnerRecord()); err != nil {
		return err
	}
	return r.waitUntilReady(vmPod, template)
}

// checkNotAttachedAgain fails if a concurrent call attached the disk to the VM with another attachment Pod. A Pod that still has its
// scheduling gate is not from an earlier attachment: its call was interrupted before the Pod became the owner.
func (r recreateStrategy) checkNotAttachedAgain(attachment manifest.AttachmentPod) error {
	pvc, err := r.s.PVCs.Get(r.s.Ctx, attachment.Disk()) // which may be being deleted
	if err != nil {
		return kube.IgnoreNotFound(err)
	}
	owner, valid := manifest.DiskPVC{PVC: pvc}.Owner()
	if valid && owner.VM == attachment.VM() && owner.Pod != attachment.UID && !attachment.IsGated() {
		return attachedAgainError(attachment)
	}
	return nil
}

func attachedAgainError(attachment manifest.AttachmentPod) error {
	return call.CodeDiskBusy.Errorf("cannot detach disk %s: a concurrent call attached it to VM %s again; retry",
		attachment.Disk(), attachment.VM())
}

// restartVM recreates the VM Pod without changes.
func (r recreateStrategy) restartVM(vmPod manifest.VMPod) error {
	if err := r.s.CheckNodeAvailable(vmPod); err != nil {
		return err
	}
	template, err := r.s.GetPodTemplate(vmPod.Name)
	if err != nil {
		return err
	}
	if err := r.checkDisks(template, ""); err != nil {
		return err
	}
	if err := r.s.deletePodAndWait(vmPod); err != nil {
		return err
	}
	r.previousNode = vmPod.Spec.NodeName
	_, err = r.ensurePodReady(template)
	return err
}

// checkDisks fails before the VM Pod is recreated if a disk of the PodTemplate, other than this one, or the PVC of the ephemeral disk is
// being deleted: the next Pod would not start, and Kubernetes would delete a disk that no Pod has.
func (r recreateStrategy) checkDisks(template *corev1.PodTemplate, except string) error {
	for _, diskCID := range manifest.DiskCIDs(template.Template.Spec) {
		if diskCID == except {
			continue
		}
		if _, err := r.s.diskSession().GetPVC(diskCID); err != nil {
			return err
		}
	}
	name := manifest.EphemeralPVCName(template.Name)
	ephemeral, err := r.s.PVCs.Get(r.s.Ctx, name)
	if errors.Is(err, kube.ErrNotFound) || err == nil && ephemeral.DeletionTimestamp != nil {
		return call.CodeVMRecreateFailed.Errorf("another client deleted PVC %s with /var/vcap of VM %s, and the VM cannot get another Pod; "+
			"recreate the VM", name, template.Name)
	}
	return err
}
