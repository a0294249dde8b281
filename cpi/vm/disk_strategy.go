package vm

import (
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Values of the cloud property disk_strategy.
const (
	diskStrategyHotPlug  = "hot-plug" // the default
	diskStrategyRecreate = "recreate"
)

// A diskStrategy is what differs between VMs by disk_strategy: hotPlugStrategy attaches and detaches disks while the VM runs,
// recreateStrategy by recreating the Pod for each disk.
type diskStrategy interface {
	// ensurePod creates the VM Pod, or adopts the Pod of an earlier attempt with the same request. If it fails, it deletes the
	// objects that it created.
	ensurePod(vm manifest.VM) (*corev1.Pod, error)
	// persist stores a change of the Pod for later Pods of the VM.
	persist(pod *corev1.Pod, change manifest.TemplateChange) error
	// restoreAndListDisks returns the CIDs of the VM's disks, and recreates missing attachment Pods.
	restoreAndListDisks(vmPod *corev1.Pod, attachments []*corev1.Pod) ([]string, error)
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
	return recreateStrategy{s}.ensureMissingPod(vmCID)
}

// recreateMissingPodAndWait calls recreateMissingPod, and waits for the VM to boot.
func (s *Session) recreateMissingPodAndWait(vmCID string) (*corev1.Pod, error) {
	return recreateStrategy{s}.ensureMissingPodReady(vmCID)
}

// isComplete reports whether no Pod of the VM has to be recreated: the VM Pod, or the attachment Pod of a disk among its volumes. A VM
// with hot-plugged disks always keeps its Pod.
func isComplete(vmPod *corev1.Pod, attachments []*corev1.Pod) bool {
	return keepsPod(vmPod) && (!manifest.IsRecreated(vmPod) || len(unattachedDisks(vmPod, attachments)) == 0)
}

// keepsPod reports whether the VM keeps this Pod in its current state. If not, the Pod must be recreated.
func keepsPod(vmPod *corev1.Pod) bool { return !manifest.IsRecreated(vmPod) || kube.IsActive(vmPod) }
