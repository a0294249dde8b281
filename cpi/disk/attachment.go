package disk

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// checkPodExists returns an error if the Pod was deleted, even if another Pod now has its name.
func (s *Session) checkPodExists(name string, uid types.UID) error {
	pod, err := s.Pods.Get(s.Ctx, name)
	if errors.Is(err, kube.ErrNotFound) || err == nil && pod.UID != uid {
		return podDeletedError(name)
	}
	return err
}

func podDeletedError(name string) error {
	return call.CodeHelperDeleted.Errorf("Pod %s was deleted before it started; retry", name)
}

// startAttachment removes the scheduling gate of an attachment Pod that owns its disk. The API server deletes a Pod without a node in two
// steps: between them, the patch succeeds for a Pod that never starts.
func (s *Session) startAttachment(attachment manifest.AttachmentPod) (manifest.AttachmentPod, error) {
	if StateOf(attachment) != AttachmentGated {
		return attachment, nil
	}
	started, err := s.Pods.Patch(s.Ctx, attachment.Name, manifest.UngatePatch(attachment.UID))
	if errors.Is(err, kube.ErrNotFound) || errors.Is(err, kube.ErrConflict) || err == nil && started.DeletionTimestamp != nil {
		return attachment, podDeletedError(attachment.Name)
	}
	if err != nil {
		return attachment, err
	}
	return manifest.AttachmentPod{Pod: started}, nil
}

// checkUnattached returns an error if a VM has the disk. A Pod that is being deleted or finished does not decide: a VM may have the disk.
func (s *Session) checkUnattached(pvc manifest.DiskPVC) error {
	attachment, err := s.GetAttachment(pvc.Name)
	if err != nil && !errors.Is(err, kube.ErrNotFound) {
		return err
	}
	if state := StateOf(attachment); err == nil && !state.IsDeleted() && !state.IsFinished() {
		if err := s.DeleteSuperseded(attachment); err != nil {
			return err
		}
	}
	return s.CheckFreeFor(pvc, "")
}

// ExplainRemoval explains why a call timed out that waits until the kubelet has removed the attachment Pod of a detached disk, and its
// volume.
func (s *Session) ExplainRemoval(attachment manifest.AttachmentPod, err error) error {
	return s.ExplainTimeout(call.CodeDiskBusy, attachment.Pod, err, fmt.Sprintf(
		"disk %s is detached, but node %s has not removed its volume; check the node's kubelet and CSI driver",
		attachment.Disk(), attachment.Spec.NodeName))
}

// GetAttachment returns the attachment Pod of the disk.
func (s *Session) GetAttachment(disk string) (manifest.AttachmentPod, error) {
	pod, err := s.Pods.Get(s.Ctx, manifest.AttachmentName(disk))
	return manifest.AttachmentPod{Pod: pod}, err
}

// DeleteSuperseded deletes an attachment Pod that still has its scheduling gate and does not own its disk. The call that created the Pod
// either ended, or fails because the Pod is gone. DeleteSuperseded fails for all other Pods, which stay. If the Pod was to replace a lost
// one, the VM keeps the disk, even if the call recorded the Pod as the owner in the meantime: another Pod replaces it.
func (s *Session) DeleteSuperseded(attachment manifest.AttachmentPod) error {
	if StateOf(attachment) != AttachmentGated {
		return s.attachedError(attachment.Disk(), attachment.VM())
	}
	pvc, err := s.read(attachment.Disk())
	if err != nil && !errors.Is(err, kube.ErrNotFound) {
		return err
	}
	if err == nil {
		if owner, _ := pvc.Owner(); owner.Pod == attachment.UID {
			return s.attachedError(attachment.Disk(), attachment.VM())
		}
	}
	deletion, err := s.Pods.DeleteInState(s.Ctx, attachment.Pod)
	switch {
	case errors.Is(err, kube.ErrConflict):
		return s.attachedError(attachment.Disk(), attachment.VM())
	case err != nil || attachment.IsReattached():
		return err
	case deletion == kube.DeletedUnchanged:
		_, err = s.ReleaseCanceled(attachment.Disk(), attachment.OwnerRecord())
		return err
	}
	// Another client may have deleted the Pod after it started: if it became the owner, the VM has the disk.
	if prevented, err := s.preventAssignment(attachment.Disk(), attachment.OwnerRecord()); prevented || err != nil {
		return err
	}
	return s.attachedError(attachment.Disk(), attachment.VM())
}

// InspectAttachment reports whether the attachment Pod of a disk that the VM has is lost: another client deleted it, or it is finished,
// for example because the kubelet evicted it. Or another client is deleting it, and it is terminating until the disk is free. A zero Pod
// does not exist. Both results are false for a VM that is not active, and for a VM with disk_strategy: recreate.
func InspectAttachment(vmPod manifest.VMPod, attachment manifest.AttachmentPod) (lost, terminating bool) {
	if vmPod.Pod == nil || !kube.IsActive(vmPod.Pod) || vmPod.HasRecreateStrategy() {
		return false, false
	}
	state := StateOf(attachment)
	return state == AttachmentAbsent || state.IsFinished(), state.IsDeleted()
}

// attachedError returns the error for a disk that the VM has. It names the instance of the VM if its Pod exists. A director may not know
// the VM after its database was restored from a backup.
func (s *Session) attachedError(disk, vmCID string) error {
	vm, deployment := vmCID, ""
	if pod, err := s.Pods.Get(s.Ctx, vmCID); err == nil {
		vmPod := manifest.VMPod{Pod: pod}
		vm, deployment = vmPod.Describe(), vmPod.Deployment()
	}
	return call.CodeDiskInUse.Errorf("disk %s is attached to VM %s; "+
		"detach it first, or, if `bosh vms` does not show that VM, delete it with %s",
		disk, vm, call.DeleteVMCommand(deployment, vmCID))
}
