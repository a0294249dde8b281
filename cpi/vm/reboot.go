package vm

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
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
	if err := p.s.RunHelperPod(call.CodeVMRebootFailed, manifest.RebootPod(vmPod, p.s.Director), "cannot reboot VM "+vmPod.Name); err != nil {
		return err
	}
	return p.waitForRestart(vmPod)
}

// waitForRestart waits for a restart of the VM's container after vmPod was read, and for the VM to boot.
func (p hotPlugStrategy) waitForRestart(vmPod manifest.VMPod) error {
	previousRestarts := manifest.OwnContainerStatus(vmPod.Pod).RestartCount
	err := p.s.WaitForPod(nil, vmPod.Pod, func(current *corev1.Pod) (bool, error) {
		if current == nil {
			return false, call.VMNotFoundError(vmPod.Name)
		}
		return manifest.OwnContainerStatus(current).RestartCount > previousRestarts && vmPod.HasBooted(), nil
	})
	return p.s.ExplainTimeout(call.CodeVMRebootTimeout, vmPod.Pod, err, "VM "+vmPod.Name+" did not start after the reboot")
}
