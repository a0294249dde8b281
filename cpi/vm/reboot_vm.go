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

// Reboot restarts the VM, and waits for it to boot. The VM keeps its Pod, addresses, volumes and disks. A VM with disk_strategy:
// recreate gets a new Pod, because the node cannot restart a VM with a sandboxed runtime class.
func (s *Session) Reboot(vmCID string) error {
	pod, err := s.Pods.Get(s.Ctx, vmCID)
	if errors.Is(err, kube.ErrNotFound) {
		_, err := s.recreateMissingPodAndWait(vmCID)
		return err
	}
	if err == nil && !manifest.HasRole(pod, manifest.RoleVM) {
		return call.VMNotFoundError(vmCID)
	}
	if err != nil {
		return err
	}
	vmPod := manifest.VMPod{Pod: pod}
	s.SetSubject(s.Pods.Reference(pod))
	return s.strategy(vmPod.HasRecreateStrategy()).restartVM(vmPod)
}

// restartVM runs a reboot Pod on the VM's node, which stops the VM's init program. The kubelet restarts the container in the same Pod.
func (p hotPlugStrategy) restartVM(vmPod manifest.VMPod) error {
	if !kube.IsActive(vmPod.Pod) || vmPod.Spec.NodeName == "" {
		return call.CodeVMNotRunning.Errorf("cannot reboot VM %s: its Pod is %s; recreate the VM",
			vmPod.Name, vmPod.State())
	}
	if err := p.s.CheckNodeAvailable(vmPod); err != nil {
		return err
	}
	nodeImage, err := p.s.NodeImageReference()
	if err != nil {
		return err
	}
	rebootPod := manifest.RebootPod(vmPod, p.s.Director, nodeImage)
	if err := p.s.RunHelperPod(call.CodeVMRebootFailed, rebootPod, "cannot reboot VM "+vmPod.Name); err != nil {
		return err
	}
	return p.waitForRestart(vmPod)
}

// waitForRestart waits for a restart of the VM's container after vmPod was read, and for the VM to boot. The VM waits for its disks. An
// attachment Pod that another client deleted ends when the VM stops: waitForRestart then recreates the Pod.
func (p hotPlugStrategy) waitForRestart(vmPod manifest.VMPod) error {
	previousRestarts := manifest.OwnContainerStatus(vmPod.Pod).RestartCount
	for booted := false; !booted; {
		found, selection, err := p.s.ListVMPods(vmPod.Name)
		if err != nil {
			return err
		}
		if err := p.restoreAttachments(vmPod, manifest.AttachmentPods(found.Items)); err != nil {
			return err
		}
		previous := len(activeAttachments(found.Items))
		err = p.s.WaitForPods(nil, selection, &found, func(present []*corev1.Pod) (bool, error) {
			i := slices.IndexFunc(present, func(pod *corev1.Pod) bool { return pod.UID == vmPod.UID })
			if i < 0 {
				return false, call.VMNotFoundError(vmPod.Name)
			}
			*vmPod.Pod = *present[i]
			booted = manifest.OwnContainerStatus(vmPod.Pod).RestartCount > previousRestarts && vmPod.HasBooted()
			return booted || len(activeAttachments(present)) < previous, nil
		})
		if err != nil {
			return p.s.ExplainTimeout(call.CodeVMRebootTimeout, vmPod.Pod, err, "VM "+vmPod.Name+" did not start after the reboot")
		}
	}
	return nil
}

// activeAttachments returns the attachment Pods that are not finished. They may be terminating.
func activeAttachments(pods []*corev1.Pod) []manifest.AttachmentPod {
	return slices.DeleteFunc(manifest.AttachmentPods(pods), func(attachment manifest.AttachmentPod) bool {
		return disk.StateOf(attachment).HasEnded()
	})
}

// restoreAttachments recreates the attachment Pods of the VM's disks that are missing or finished. It does not wait for them.
func (p hotPlugStrategy) restoreAttachments(vmPod manifest.VMPod, attachments []manifest.AttachmentPod) error {
	var active []manifest.AttachmentPod
	for _, attachment := range attachments {
		switch state := disk.StateOf(attachment); {
		case !state.HasEnded():
			active = append(active, attachment)
		case state == disk.AttachmentReleased: // the VM does not have the disk anymore
		default:
			if err := p.s.DeletePodAndWait(attachment.Pod); err != nil {
				return err
			}
		}
	}
	_, err := p.restoreAndListDisks(vmPod, active)
	return err
}
