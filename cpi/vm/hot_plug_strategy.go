package vm

import (
	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
)

// hotPlugStrategy attaches disks to a running VM, and detaches them. The attachment Pod of a disk does all the work; the VM Pod does not
// change. Its methods for one CPI method are in that method's file, and the recreation of lost attachment Pods in restore_attachments.go.
type hotPlugStrategy struct{ s *Session }

// validateDisk rejects a disk that would hide files on its volume, and a VM that cannot open devices.
func (hotPlugStrategy) validateDisk(pvc manifest.DiskPVC, vmPod manifest.VMPod, _ []manifest.AttachmentPod) error {
	if pvc.HasDirectory() {
		return call.CodeDiskAttachUnsupported.Errorf("cannot attach disk %s to VM %s: its volume has the files of a VM with "+
			"disk_strategy: recreate; attach it to such a VM, or create another disk", pvc.Name, vmPod.Name)
	}
	if !vmPod.CanMountDevices() {
		return call.CodeDiskAttachUnsupported.Errorf("cannot attach disk %s to VM %s: %w", pvc.Name, vmPod.Name, errCannotMountDevices)
	}
	return nil
}
