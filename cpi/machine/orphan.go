package machine

import (
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// freeAddresses removes the machines that have the new one's addresses and that the director does not know of: it gives
// an address away only when no VM has it, but for one whose create_vm was killed with the director itself. That one is
// without the name that the director gives each VM, and would keep the new one waiting for its address.
func (s *Session) freeAddresses(vm manifest.VM) error {
	address := manifest.AddressLabel(vm.Addresses)
	if address == "" {
		return nil
	}
	found, err := s.Pods.List(s.Ctx, kube.Selection{Labels: manifest.OfDirector(s.Director) + "," + manifest.LabelAddress + "=" + address})
	if err != nil {
		return err
	}
	for _, pod := range call.Machines(found.Items) {
		if pod.Name == vm.Name || manifest.Named(pod.Annotations) {
			continue
		}
		named, err := s.namedTemplate(pod)
		if err != nil {
			return err
		}
		if named {
			continue
		}
		s.Log.Warn("removing a VM that the director has never named: its address is another's now", "vm", pod.Name, "address", address)
		if err := s.remove(pod); err != nil {
			return err
		}
	}
	return nil
}

// namedTemplate reports that what the machine's Pod was made from has the director's name for it.
func (s *Session) namedTemplate(pod *corev1.Pod) (bool, error) {
	if !manifest.Recreated(pod) {
		return false, nil
	}
	template, err := s.Template(pod.Name)
	if call.VMNotFound.In(err) {
		return false, nil
	}
	return err == nil && manifest.Named(template.Template.Annotations), err
}
