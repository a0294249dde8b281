package vm

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Reboot restarts the machine and waits until it is up again. Its Pod, address, volumes and disks stay. Where
// the node cannot reach into the machine, as with a sandboxed runtime class, its Pod is made again.
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

// restartVM ends the machine's init program from its node; the kubelet starts it again in the same Pod.
func (p hotPlugStrategy) restartVM(vmPod *corev1.Pod) error {
	if !kube.IsActive(vmPod) || vmPod.Spec.NodeName == "" {
		return call.CloudError.Errorf("VM %s does not run (its Pod is %s): it cannot be rebooted, only recreated",
			vmPod.Name, vmPod.Status.Phase)
	}
	if err := p.CheckNodeAvailable(vmPod); err != nil {
		return err
	}
	if err := p.RunHelperPod(manifest.RebootPod(vmPod, p.Director), "the machine was not restarted"); err != nil {
		return err
	}
	return p.waitForRestart(vmPod)
}

// waitForRestart waits until the container has restarted since machine was read, and is up.
func (p hotPlugStrategy) waitForRestart(vmPod *corev1.Pod) error {
	previousRestarts := manifest.OwnContainerStatus(vmPod).RestartCount
	err := p.WaitForPod(nil, vmPod, func(now *corev1.Pod) (bool, error) {
		if now == nil {
			return false, call.NoVM(vmPod.Name)
		}
		return manifest.OwnContainerStatus(now).RestartCount > previousRestarts && manifest.HasBooted(vmPod), nil
	})
	return p.ExplainTimeout(vmPod, err, "VM "+vmPod.Name+" did not come up again")
}
