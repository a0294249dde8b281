package manifest

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

// RebootPodName is the name of the Pod that restarts this machine.
func RebootPodName(vm string) string { return vm + "-reboot" }

// containerID is the runtime's own id of the machine's container, without the runtime's name.
func containerID(vm *corev1.Pod) string {
	_, id, _ := strings.Cut(OwnContainerStatus(vm).ContainerID, "://")
	return id
}

// RebootPod is a Pod on the machine's node that ends the machine's init program, as its own reset button:
// the kubelet then starts the container again in the same Pod, with the same address and volumes. It
// runs once, belongs to the machine, and leaves a container alone that is not the one of the request.
func RebootPod(vm *corev1.Pod, director string) *corev1.Pod {
	return newOwnedHelperPod(RebootPodName(vm.Name), RoleReboot, director, vm, corev1.Container{
		Command: node.Reboot(),
		Env: []corev1.EnvVar{
			{Name: "VM", Value: path.Join(vm.Namespace, vm.Name)},
			{Name: "CONTAINER", Value: containerID(vm)},
		},
	})
}
