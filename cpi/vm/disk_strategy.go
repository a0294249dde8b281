package vm

import (
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/network"
)

// Values of the cloud property disk_strategy.
const (
	diskStrategyHotPlug  = "hot-plug" // the default
	diskStrategyRecreate = "recreate"
)

// A diskStrategy creates the Pod of a VM, and attaches and detaches its disks: hotPlugStrategy while the VM runs, recreateStrategy by
// recreating the Pod for each disk.
type diskStrategy interface {
	// validateNetworks rejects networks on which the VM could lose its address.
	validateNetworks(networks network.Networks) error
	// ensurePod creates the VM Pod, or adopts the Pod of an earlier attempt with the same request. If it fails, it deletes the
	// objects that it created.
	ensurePod(vm manifest.VM) (*corev1.Pod, error)
	// templateOf returns the PodTemplate from which a missing Pod of the VM is recreated, or nil if a missing Pod is not recreated.
	templateOf(pod *corev1.Pod) *corev1.PodTemplate

	// keepsPod reports whether the VM keeps this Pod in its current state. If not, the Pod must be recreated.
	keepsPod(pod *corev1.Pod) bool
	// hasAllAttachments reports whether all disks among the volumes of the VM Pod have attachment Pods.
	hasAllAttachments(vmPod *corev1.Pod, attachments []*corev1.Pod) bool
	// restoreAndListDisks returns the CIDs of the VM's disks, and recreates missing attachment Pods.
	restoreAndListDisks(vmPod *corev1.Pod, attachments []*corev1.Pod) ([]string, error)
	// restoreAttachment recreates the missing attachment Pod of a disk that the VM uses.
	restoreAttachment(vmCID, diskCID string) error
	// ensureScheduled returns the VM Pod with its node, if the Pod is certain to get one.
	ensureScheduled(vmPod *corev1.Pod) (*corev1.Pod, error)

	// persistMetadata stores the metadata of the Pod for later Pods of the VM.
	persistMetadata(pod *corev1.Pod, metadata manifest.Metadata) error
	// persistAddresses stores the addresses of the Pod, and the annotations that request them, for later Pods of the VM.
	persistAddresses(pod *corev1.Pod, annotations map[string]string) error

	// validateDisk rejects a disk that cannot be attached with this strategy.
	validateDisk(pvc *corev1.PersistentVolumeClaim, vmPod *corev1.Pod) error
	// exposeDisk makes an attached disk available in the VM. If it fails, and owned reports that this call owns the attachment Pod, it
	// detaches the disk.
	exposeDisk(pvc *corev1.PersistentVolumeClaim, vmPod, attachment *corev1.Pod, owned bool) error
	// detachDisk removes the disk from the VM, and deletes its attachment Pod.
	detachDisk(vmCID string, attachment *corev1.Pod) error
	// restartVM restarts the VM, and waits for it to boot.
	restartVM(vmPod *corev1.Pod) error
}

// strategyForVM returns the strategy of a VM to be created.
func (s *Session) strategyForVM(vm manifest.VM) diskStrategy {
	if vm.Recreate {
		return recreateStrategy{s}
	}
	return hotPlugStrategy{s}
}

// strategyForPod returns the strategy of the VM to which this VM Pod or attachment Pod belongs.
func (s *Session) strategyForPod(pod *corev1.Pod) diskStrategy {
	if manifest.IsRecreated(pod) {
		return recreateStrategy{s}
	}
	return hotPlugStrategy{s}
}

// recreateMissingPod recreates the missing Pod of a recreated VM, for example after an interrupted call or a drain. It does not
// wait for the VM to boot. For any other VM it returns VMNotFound.
func (s *Session) recreateMissingPod(vmCID string) error {
	return recreateStrategy{s}.ensureVMPod(vmCID)
}

// recreateMissingPodAndWait calls recreateMissingPod, and waits for the VM to boot.
func (s *Session) recreateMissingPodAndWait(vmCID string) (*corev1.Pod, error) {
	return recreateStrategy{s}.ensureVMReady(vmCID)
}
