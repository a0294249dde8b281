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
	// restoreAndListDisks returns the CIDs of the VM's disks, and recreates missing attachment Pods.
	restoreAndListDisks(vmPod manifest.VMPod, attachments []manifest.AttachmentPod) ([]string, error)
	// validateDisk rejects a disk that the VM cannot have, alone or with the disks of these attachment Pods.
	validateDisk(pvc manifest.DiskPVC, vmPod manifest.VMPod, attachments []manifest.AttachmentPod) error
	// detachDisk removes the disk from the VM, and deletes its attachment Pod.
	detachDisk(vmCID string, attachment manifest.AttachmentPod) error
	// restartVM restarts the VM, and waits for it to boot.
	restartVM(vmPod manifest.VMPod) error
}

// strategy returns the strategy of a VM.
func (s *Session) strategy(hasRecreateStrategy bool) diskStrategy {
	if hasRecreateStrategy {
		return recreateStrategy{s: s}
	}
	return hotPlugStrategy{s}
}

// recreateMissingPod recreates the missing Pod of a VM with disk_strategy: recreate, for example after an interrupted call or a drain.
// It does not wait for the VM to boot. For any other VM it returns VMNotFound.
func (s *Session) recreateMissingPod(vmCID string) error {
	template, err := s.GetPodTemplate(vmCID)
	if err != nil {
		return err
	}
	_, err = recreateStrategy{s: s}.ensurePodFromTemplate(template)
	return err
}

// recreateMissingPodAndWait calls recreateMissingPod, and waits for the VM to boot.
func (s *Session) recreateMissingPodAndWait(vmCID string) (manifest.VMPod, error) {
	template, err := s.GetPodTemplate(vmCID)
	if err != nil {
		return manifest.VMPod{}, err
	}
	return recreateStrategy{s: s}.ensurePodReady(template)
}

// mustRecreate reports whether the VM Pod must be recreated or started: it is finished, being deleted or gated, and its VM has
// disk_strategy: recreate.
func mustRecreate(vmPod manifest.VMPod) bool {
	return vmPod.HasRecreateStrategy() && (!kube.IsActive(vmPod.Pod) || vmPod.IsGated())
}
