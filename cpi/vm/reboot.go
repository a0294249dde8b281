package vm

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Reboot restarts the VM, and waits until it has booted. The VM keeps its Pod, addresses, volumes and disks. A recreated VM, which its
// node cannot restart because of a sandboxed runtime class, gets a new Pod.
func (s *Session) Reboot(vmCID string) error {
	vmPod, err := s.Pods.Get(s.Ctx, vmCID)
	if errors.Is(err, kube.ErrNotFound) {
		_, err := s.recreateMissingPodAndWait(vmCID)
		return err
	}
	if err == nil && vmPod.Labels[manifest.LabelRole] != manifest.RoleVM {
		return call.NoVM(vmCID)
	}
	if err != nil {
		return err
	}
	s.SetSubject(s.Pods.Reference(vmPod))
	return s.strategyForPod(vmPod).restartVM(vmPod)
}

// restartVM runs a reboot Pod on the VM's node, which stops the VM's init program. The kubelet restarts the container in the same Pod.
func (p hotPlugStrategy) restartVM(vmPod *corev1.Pod) error {
	if !kube.IsActive(vmPod) || vmPod.Spec.NodeName == "" {
		return call.VMNotRunning.Errorf("cannot reboot VM %s: its Pod is %s; recreate the VM",
			vmPod.Name, vmPod.Status.Phase)
	}
	if err := p.CheckNodeAvailable(vmPod); err != nil {
		return err
	}
	if err := p.RunHelperPod(call.VMRebootFailed, manifest.RebootPod(vmPod, p.Director), "cannot reboot VM "+vmPod.Name); err != nil {
		return err
	}
	return p.waitForRestart(vmPod)
}

// waitForRestart waits until the VM's container has restarted since vmPod was read, and the VM has booted.
func (p hotPlugStrategy) waitForRestart(vmPod *corev1.Pod) error {
	previousRestarts := manifest.OwnContainerStatus(vmPod).RestartCount
	err := p.WaitForPod(nil, vmPod, func(now *corev1.Pod) (bool, error) {
		if now == nil {
			return false, call.NoVM(vmPod.Name)
		}
		return manifest.OwnContainerStatus(now).RestartCount > previousRestarts && manifest.HasBooted(vmPod), nil
	})
	return p.ExplainTimeout(call.VMRebootTimeout, vmPod, err, "VM "+vmPod.Name+" did not start after the reboot")
}
