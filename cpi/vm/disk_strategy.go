package vm

import (
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Values of the cloud property disk_strategy.
const (
	diskStrategyHotPlug  = "hot-plug" // the default
	diskStrategyRecreate = "recreate"
)

// A strategy is how a machine gets its Pod and its disks: hotPlug, whose Pod is made once and whose disks
// appear in it while it runs, or recreate, whose Pod is made again with each disk.
type diskStrategy interface {
	// validateNetworks refuses networks on which such a machine would lose its address.
	validateNetworks(networks network.Networks) error
	// ensurePod makes the machine's Pod, or adopts the one that an earlier try with the same request left. With
	// an error nothing of it stays.
	ensurePod(vm manifest.VM) (*corev1.Pod, error)
	// templateOf is what the Pod would be made from again when it is missing; nil for one that is made once.
	templateOf(pod *corev1.Pod) *corev1.PodTemplate

	// keepsPod reports that the Pod, whatever its state, is not to be replaced by another.
	keepsPod(pod *corev1.Pod) bool
	// hasAllAttachments reports that the machine's disks have the attachments that they need.
	hasAllAttachments(vmPod *corev1.Pod, attachments []*corev1.Pod) bool
	// restoreAndListDisks are the CIDs of the disks that the machine has. One whose attachment was taken away gets it back.
	restoreAndListDisks(vmPod *corev1.Pod, attachments []*corev1.Pod) ([]string, error)
	// restoreAttachment brings back the attachment that was taken away from a disk that the machine uses.
	restoreAttachment(vmCID, diskCID string) error
	// ensureScheduled returns the machine with its node, where it is sure to get one.
	ensureScheduled(vmPod *corev1.Pod) (*corev1.Pod, error)

	// persistMetadata puts metadata that the Pod has where the machine's next Pod has it from.
	persistMetadata(pod *corev1.Pod, metadata manifest.Metadata) error
	// persistAddresses writes down the Pod's addresses, with the annotations that ask for them again, likewise.
	persistAddresses(pod *corev1.Pod, annotations map[string]string) error

	// validateDisk refuses a disk that such a machine cannot have.
	validateDisk(pvc *corev1.PersistentVolumeClaim, vmPod *corev1.Pod) error
	// exposeDisk makes a disk that is attached appear in the machine. mine tells that this call has attached it,
	// and is to leave nothing behind when it fails.
	exposeDisk(pvc *corev1.PersistentVolumeClaim, vmPod, attachment *corev1.Pod, owned bool) error
	// detachDisk makes the disk disappear from the machine, and ends its attachment.
	detachDisk(vmCID string, attachment *corev1.Pod) error
	// restartVM restarts the machine, and waits until it is up again.
	restartVM(vmPod *corev1.Pod) error
}

// strategyForVM returns the strategy of a machine that is to be made.
func (s *Session) strategyForVM(vm manifest.VM) diskStrategy {
	if vm.Recreate {
		return recreateStrategy{s}
	}
	return hotPlugStrategy{s}
}

// strategyForPod returns the strategy of the machine whose Pod, or whose disk's attachment, this is.
func (s *Session) strategyForPod(pod *corev1.Pod) diskStrategy {
	if manifest.IsRecreated(pod) {
		return recreateStrategy{s}
	}
	return hotPlugStrategy{s}
}

// recreateMissingPod makes a machine's Pod that is missing, as after a call that was cut short or a drain. It does not
// wait for the machine. One whose Pod is made once is VMNotFound then.
func (s *Session) recreateMissingPod(vmCID string) error {
	return recreateStrategy{s}.ensureVMPod(vmCID)
}

// recreateMissingPodAndWait is revive, and waits until the machine is up.
func (s *Session) recreateMissingPodAndWait(vmCID string) (*corev1.Pod, error) {
	return recreateStrategy{s}.ensureVMReady(vmCID)
}
