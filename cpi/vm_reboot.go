package cpi

import (
	"errors"

	"github.com/cloudfoundry/bosh-cpi-go/apiv1"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// rebootVM restarts the machine in place and waits until it is up again. Its Pod, address, volumes and
// disks stay. Where the node cannot reach into the machine, as with a sandboxed runtime class, its Pod is
// made again.
func (c *call) rebootVM(cid apiv1.VMCID) (any, error) {
	cluster, err := c.cluster()
	if err != nil {
		return nil, err
	}
	vm, err := cluster.Pods.Get(c.ctx, cid.AsString())
	if errors.Is(err, kube.ErrNotFound) {
		_, err := c.boot(cluster, cid.AsString())
		return nil, err
	}
	if err == nil && vm.Labels[manifest.LabelRole] != manifest.RoleVM {
		return nil, vmNotFound(cid.AsString())
	}
	if err != nil {
		return nil, err
	}
	if manifest.Recreated(vm) {
		if err := c.onNode(cluster, vm); err != nil {
			return nil, err
		}
		return nil, c.restart(cluster, vm)
	}
	if kube.Finished(vm) || vm.Spec.NodeName == "" || vm.DeletionTimestamp != nil {
		return nil, typed(typeCloudError, "VM %s does not run (its Pod is %s): it cannot be rebooted, only recreated", vm.Name, vm.Status.Phase)
	}
	if err := c.onNode(cluster, vm); err != nil {
		return nil, err
	}
	if err := c.runErrand(cluster, manifest.Reboot(vm, c.director), "the machine was not restarted"); err != nil {
		return nil, err
	}
	return nil, c.awaitRestart(cluster, vm)
}

// awaitRestart waits until the container has restarted since vm was read, and is up.
func (c *call) awaitRestart(cluster *kube.Client, vm *corev1.Pod) error {
	before := restarts(vm)
	err := cluster.Pods.Await(c.ctx, kube.Selection{Name: vm.Name}, kube.At(vm), func(present []*corev1.Pod) (bool, error) {
		if len(present) == 0 || present[0].UID != vm.UID {
			return false, vmNotFound(vm.Name)
		}
		*vm = *present[0]
		return restarts(vm) > before && kube.Ready(vm), nil
	})
	return c.explainTimeout(cluster, vm, err, "VM "+vm.Name+" did not come up again")
}

func restarts(pod *corev1.Pod) (count int32) {
	for _, status := range pod.Status.ContainerStatuses {
		count += status.RestartCount
	}
	return count
}
