package cpi

import (
	"errors"
	"strings"

	"github.com/cloudfoundry/bosh-cpi-go/apiv1"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// rebootVM restarts the machine in place and waits until it is up again. Its Pod, address, volumes and
// disks stay.
func (c *call) rebootVM(cid apiv1.VMCID) (any, error) {
	cluster, err := c.cluster()
	if err != nil {
		return nil, err
	}
	vm, err := cluster.Pods.Get(c.ctx, cid.AsString())
	if errors.Is(err, kube.ErrNotFound) || err == nil && vm.Labels[manifest.LabelRole] != manifest.RoleVM {
		return nil, vmNotFound(cid.AsString())
	}
	if err != nil {
		return nil, err
	}
	if kube.Finished(vm) || vm.Spec.NodeName == "" || vm.DeletionTimestamp != nil {
		return nil, typed(typeCloudError, "VM %s does not run (its Pod is %s): it cannot be rebooted, only recreated", vm.Name, vm.Status.Phase)
	}
	if err := c.onNode(cluster, vm); err != nil {
		return nil, err
	}
	// One that a call which was cut short left makes room.
	reset, _, err := cluster.Pods.Bring(c.ctx, manifest.Reboot(vm, c.director), func(left *corev1.Pod) (bool, error) {
		return false, c.endPod(cluster, left)
	})
	if err != nil {
		return nil, err
	}
	err = c.awaitReset(cluster, reset)
	if err == nil {
		err = c.awaitRestart(cluster, vm)
	}
	detached, cancel := c.detached()
	defer cancel()
	return nil, errors.Join(err, cluster.Pods.Delete(detached.ctx, reset))
}

func (c *call) awaitReset(cluster *kube.Client, reset *corev1.Pod) error {
	err := cluster.Pods.Await(c.ctx, kube.Selection{Name: reset.Name}, kube.At(reset), func(present []*corev1.Pod) (bool, error) {
		if len(present) == 0 {
			return false, typed(typeCloudError, "Pod %s was deleted by someone else", reset.Name)
		}
		*reset = *present[0]
		if reset.Status.Phase != corev1.PodFailed {
			return reset.Status.Phase == corev1.PodSucceeded, nil
		}
		why := ""
		for _, status := range reset.Status.ContainerStatuses {
			if status.State.Terminated != nil {
				why = strings.TrimSpace(status.State.Terminated.Message)
			}
		}
		return false, typed(typeCloudError, "the machine was not restarted: %s", why)
	})
	return c.explainTimeout(cluster, reset, err, "the machine was not restarted")
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
