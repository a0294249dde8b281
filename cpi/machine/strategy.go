package machine

import (
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Values of the cloud property disk_strategy.
const (
	strategyHotPlug  = "hot-plug" // the default
	strategyRecreate = "recreate"
)

// A strategy is how a machine gets its Pod and its disks: hotPlug, whose Pod is made once and whose disks
// appear in it while it runs, or recreate, whose Pod is made again with each disk.
type strategy interface {
	// permit refuses networks on which such a machine would lose its address.
	permit(networks network.Networks) error
	// bring makes the machine's Pod, or adopts the one that an earlier try with the same request left. With
	// an error nothing of it stays.
	bring(vm manifest.VM) (*corev1.Pod, error)
	// origin is what the Pod would be made from again when it is missing; nil for one that is made once.
	origin(pod *corev1.Pod) *corev1.PodTemplate

	// stays reports that the Pod, whatever its state, is not to be replaced by another.
	stays(pod *corev1.Pod) bool
	// whole reports that the machine's disks have the attachments that they need.
	whole(machine *corev1.Pod, attachments []*corev1.Pod) bool
	// held are the CIDs of the disks that the machine has. One whose attachment was taken away gets it back.
	held(machine *corev1.Pod, attachments []*corev1.Pod) ([]string, error)
	// regain brings back the attachment that was taken away from a disk that the machine uses.
	regain(vm, cid string) error
	// placed returns the machine with its node, where it is sure to get one.
	placed(machine *corev1.Pod) (*corev1.Pod, error)

	// describe puts metadata that the Pod has where the machine's next Pod has it from.
	describe(pod *corev1.Pod, metadata manifest.Metadata) error
	// keep writes down the Pod's addresses, with the annotations that ask for them again, likewise.
	keep(pod *corev1.Pod, asking map[string]string) error

	// accept refuses a disk that such a machine cannot have.
	accept(disk *corev1.PersistentVolumeClaim, machine *corev1.Pod) error
	// give makes a disk that is attached appear in the machine. mine tells that this call has attached it,
	// and is to leave nothing behind when it fails.
	give(disk *corev1.PersistentVolumeClaim, machine, attachment *corev1.Pod, mine bool) error
	// take makes the disk disappear from the machine, and ends its attachment.
	take(vm string, attachment *corev1.Pod) error
	// reboot restarts the machine, and waits until it is up again.
	reboot(machine *corev1.Pod) error
}

// strategyFor returns the strategy of a machine that is to be made.
func (s *Session) strategyFor(vm manifest.VM) strategy {
	if vm.Recreate {
		return recreate{s}
	}
	return hotPlug{s}
}

// strategyOf returns the strategy of the machine whose Pod, or whose disk's attachment, this is.
func (s *Session) strategyOf(pod *corev1.Pod) strategy {
	if manifest.Recreated(pod) {
		return recreate{s}
	}
	return hotPlug{s}
}

// revive makes a machine's Pod that is missing, as after a call that was cut short or a drain. It does not
// wait for the machine. One whose Pod is made once is VMNotFound then.
func (s *Session) revive(vm string) error { return recreate{s}.revive(vm) }

// boot is revive, and waits until the machine is up.
func (s *Session) boot(vm string) (*corev1.Pod, error) { return recreate{s}.boot(vm) }
