package manifest

import (
	"path"
	"strings"

	"bosh-kubernetes-cpi/cpi/node/api"
)

// RebootPodName returns the name of the reboot Pod of this VM.
func RebootPodName(vm string) string { return vm + "-reboot" }

// containerID returns the runtime's ID of the VM's container, without the runtime's name.
func containerID(vm VMPod) string {
	_, id, _ := strings.Cut(OwnContainerStatus(vm.Pod).ContainerID, "://")
	return id
}

// RebootPod returns the Pod that restarts the VM: it runs once on the VM's node and ends the VM's init program. The kubelet then
// starts the container again in the same Pod, with the same address and volumes. The VM owns the reboot Pod. The Pod gets the ID of
// the VM's current container, and does nothing if the VM runs in a later one.
func RebootPod(vm VMPod, director, nodeImage string) HelperPod {
	reboot := api.VMReboot{VM: path.Join(vm.Namespace, vm.Name), Container: containerID(vm)}
	return newOwnedHelperPod(RebootPodName(vm.Name), RoleReboot, director, nodeImage, vm.Pod, reboot.Command())
}
