package vm

import (
	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// removeAddressConflicts deletes orphaned VMs that request the addresses of the new VM.
//
// The director assigns an address only if none of its VMs has it. But a director that is killed during create_vm leaves a VM that
// it does not know. The orphaned VM lacks the metadata that the director sets after create_vm. It keeps the address, and the new VM
// would wait for it.
func (s *Session) removeAddressConflicts(vm manifest.VM) error {
	address := manifest.AddressLabel(vm.Addresses)
	if address == "" {
		return nil
	}
	found, err := s.Pods.List(
		s.Ctx,
		kube.Selection{Labels: manifest.DirectorSelector(s.Director) + "," + manifest.LabelRequestedAddresses + "=" + address},
	)
	if err != nil {
		return err
	}
	for _, pod := range manifest.VMPods(found.Items) {
		// A later call created the VM: this call is a late attempt that the director no longer waits for.
		if pod.Name == vm.Name || pod.HasMetadata() || s.StartedBeforeOwner(pod) {
			continue
		}
		hasMetadata, err := s.templateHasMetadata(pod)
		if err != nil {
			return err
		}
		if hasMetadata {
			continue
		}
		s.Log.Warn("deleting an orphaned VM, because its address was assigned to another VM", "vm", pod.Name, "address", address)
		if err := s.deleteVMAndWait(pod); err != nil {
			return err
		}
	}
	return nil
}

// templateHasMetadata reports whether the PodTemplate of a VM with disk_strategy: recreate has the director's metadata.
func (s *Session) templateHasMetadata(pod manifest.VMPod) (bool, error) {
	if !pod.HasRecreateStrategy() {
		return false, nil
	}
	template, err := s.GetPodTemplate(pod.Name)
	if call.VMNotFound.Is(err) {
		return false, nil
	}
	return err == nil && manifest.HasMetadata(template.Template.Annotations), err
}
