package vm

import (
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
	ensurePod(vm manifest.VM) (manifest.VMPod, error)
	// persist stores a change of the Pod for later Pods of the VM.
	persist(vmPod manifest.VMPod, change manifest.TemplateChange) error
	// restoreAndListDisks returns the CIDs of the VM's disks, and recreates missing attachment Pods.
	restoreAndListDisks(vmPod manifest.VMPod, attachments []manifest.AttachmentPod) ([]string, error)
	// publishDisk makes an attached disk available in the VM. If it fails, and owned reports that this call owns the attachment Pod, it
	// detaches the disk.
	publishDisk(pvc manifest.DiskPVC, vmPod manifest.VMPod, attachment manifest.AttachmentPod, owned bool) error
	// detachDisk removes the disk from the VM, and deletes its attachment Pod.
	detachDisk(vmCID string, attachment manifest.AttachmentPod) error
	// restartVM restarts the VM, and waits for it to boot.
	restartVM(vmPod manifest.VMPod) error
}

// strategy returns the strategy of a VM.
func (s *Session) strategy(hasRecreateStrategy bool) diskStrategy {
	if hasRecreateStrategy {
		return recreateStrategy{s}
	}
	return hotPlugStrategy{s}
}

// recreateMissingPod recreates the missing Pod of a VM with disk_strategy: recreate, for example after an interrupted call or a drain.
// It does not wait for the VM to boot. For any other VM it returns VMNotFound.
func (s *Session) recreateMissingPod(vmCID string) error {
	return recreateStrategy{s}.ensureMissingPod(vmCID)
}

// recreateMissingPodAndWait calls recreateMissingPod, and waits for the VM to boot.
func (s *Session) recreateMissingPodAndWait(vmCID string) (manifest.VMPod, error) {
	return recreateStrategy{s}.ensureMissingPodReady(vmCID)
}

// isComplete reports whether no Pod of the VM has to be recreated: the VM Pod, or the attachment Pod of a disk among its volumes. A VM
// with hot-plugged disks always keeps its Pod.
func isComplete(vmPod manifest.VMPod, attachments []manifest.AttachmentPod) bool {
	return keepsPod(vmPod) && (!vmPod.HasRecreateStrategy() || len(unattachedDisks(vmPod, attachments)) == 0)
}

// keepsPod reports whether the VM keeps this Pod in its current state. If not, the Pod must be recreated.
func keepsPod(vmPod manifest.VMPod) bool {
	return !vmPod.HasRecreateStrategy() || kube.IsActive(vmPod.Pod)
}
