package vm

import (
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// removeAddressConflicts removes the machines that have the new one's addresses and that the director does not know of: it gives
// an address away only when no VM has it, but for one whose create_vm was killed with the director itself. That one is
// without the name that the director gives each VM, and would keep the new one waiting for its address.
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
	for _, pod := range call.VMPods(found.Items) {
		if pod.Name == vm.Name || manifest.HasMetadata(pod.Annotations) {
			continue
		}
		isNamed, err := s.templateIsNamed(pod)
		if err != nil {
			return err
		}
		if isNamed {
			continue
		}
		s.Log.Warn("removing a VM that the director has never named: its address is another's now", "vm", pod.Name, "address", address)
		if err := s.removeVM(pod); err != nil {
			return err
		}
	}
	return nil
}

// templateIsNamed reports that what the machine's Pod was made from has the director's name for it.
func (s *Session) templateIsNamed(pod *corev1.Pod) (bool, error) {
	if !manifest.IsRecreated(pod) {
		return false, nil
	}
	template, err := s.GetPodTemplate(pod.Name)
	if call.VMNotFound.Is(err) {
		return false, nil
	}
	return err == nil && manifest.HasMetadata(template.Template.Annotations), err
}
