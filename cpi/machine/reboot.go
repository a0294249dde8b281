package machine

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Reboot restarts the machine and waits until it is up again. Its Pod, address, volumes and disks stay. Where
// the node cannot reach into the machine, as with a sandboxed runtime class, its Pod is made again.
func (s *Session) Reboot(vm string) error {
	machine, err := s.Pods.Get(s.Ctx, vm)
	if errors.Is(err, kube.ErrNotFound) {
		_, err := s.boot(vm)
		return err
	}
	if err == nil && machine.Labels[manifest.LabelRole] != manifest.RoleVM {
		return call.NoVM(vm)
	}
	if err != nil {
		return err
	}
	s.About(s.Pods.Reference(machine))
	return s.strategyOf(machine).reboot(machine)
}

// reboot ends the machine's init program from its node; the kubelet starts it again in the same Pod.
func (p hotPlug) reboot(machine *corev1.Pod) error {
	if !kube.Runs(machine) || machine.Spec.NodeName == "" {
		return call.CloudError.Errorf("VM %s does not run (its Pod is %s): it cannot be rebooted, only recreated",
			machine.Name, machine.Status.Phase)
	}
	if err := p.OnNode(machine); err != nil {
		return err
	}
	if err := p.RunErrand(manifest.Reboot(machine, p.Director), "the machine was not restarted"); err != nil {
		return err
	}
	return p.awaitRestart(machine)
}

// awaitRestart waits until the container has restarted since machine was read, and is up.
func (p hotPlug) awaitRestart(machine *corev1.Pod) error {
	before := manifest.OwnStatus(machine).RestartCount
	err := p.Follow(nil, machine, func(now *corev1.Pod) (bool, error) {
		if now == nil {
			return false, call.NoVM(machine.Name)
		}
		return manifest.OwnStatus(now).RestartCount > before && manifest.Up(machine), nil
	})
	return p.ExplainTimeout(machine, err, "VM "+machine.Name+" did not come up again")
}
