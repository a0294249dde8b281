package vm

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
)

// removeAddressConflicts deletes orphaned VMs that request the addresses of the new VM, and fails if another VM requests them: the new
// VM would wait for its addresses until create_vm times out.
//
// The director assigns an address only if none of its VMs has it. But a director that is killed during create_vm leaves a VM that
// it does not know. The orphaned VM lacks the metadata that the director sets after create_vm. After a restore of its database from a
// backup, a director does not know VMs with metadata, either. Only the operator can decide whether these are still necessary.
func (s *Session) removeAddressConflicts(vm manifest.VM) error {
	address := manifest.AddressLabel(vm.Addresses)
	if address == "" {
		return nil
	}
	selection := kube.Selection{Labels: manifest.ManagedSelector + "," + manifest.LabelRequestedAddresses + "=" + address}
	found, err := s.Pods.List(s.Ctx, selection)
	if err != nil {
		return err
	}
	for _, pod := range manifest.VMPods(found.Items) {
		if pod.Name == vm.Name {
			continue
		}
		orphaned, err := s.isOrphaned(pod)
		switch {
		case err != nil:
			return err
		case !orphaned && kube.IsActive(pod.Pod):
			return s.addressInUseError(vm, pod)
		// A later call created the VM: this call is a late attempt that the director no longer waits for.
		case !orphaned || s.StartedBeforeOwner(pod):
			continue
		}
		s.Log.Warn("deleting an orphaned VM, because its address was assigned to another VM", "vm", pod.Name, "address", address)
		if err := s.deleteVMAndWait(pod); err != nil {
			return err
		}
	}
	return nil
}

// isOrphaned reports whether this director created the VM but did not set its metadata, neither on the Pod nor on the PodTemplate of a VM
// with disk_strategy: recreate.
func (s *Session) isOrphaned(pod manifest.VMPod) (bool, error) {
	if s.Director == "" || !manifest.BelongsTo(pod, s.Director) || pod.HasMetadata() {
		return false, nil
	}
	if !pod.HasRecreateStrategy() {
		return true, nil
	}
	template, err := s.GetPodTemplate(pod.Name)
	if call.VMNotFound.Is(err) {
		return true, nil
	}
	return err == nil && !manifest.HasMetadata(template.Template.Annotations), err
}

// addressInUseError returns the error for a VM if an existing VM requests its addresses. The director does not retry the call.
func (s *Session) addressInUseError(vm manifest.VM, existing manifest.VMPod) error {
	owner, remedy := "", "if `bosh vms` does not show that VM, delete it with "+call.DeleteVMCommand(existing.Deployment(), existing.Name)
	director := manifest.DirectorNameOf(existing)
	switch {
	case !manifest.BelongsTo(existing, s.Director):
		owner = fmt.Sprintf(" of another director, %s,", cmp.Or(strings.TrimSpace(director+" "+manifest.DirectorOf(existing)), "without a UUID"))
		remedy = "choose another address, or delete that VM with its director"
	case director == manifest.CreateEnvDirector:
		remedy = fmt.Sprintf("if the state file of create-env does not contain that VM, run `kubectl delete pod --namespace %s %s`",
			existing.Namespace, existing.Name)
	}
	return call.CodeAddressInUse.Errorf("cannot create VM %s with address %s: VM %s%s has it; %s",
		vm.Name, strings.Join(vm.Addresses, ", "), existing.Describe(), owner, remedy)
}

// explainAddresses adds the state of the Pod to the error of a VM that did not get its addresses.
func (s *Session) explainAddresses(pod manifest.VMPod, networks network.Networks, err error) error {
	switch {
	case errors.Is(err, network.ErrAddressMismatch):
		return fmt.Errorf("%w; Pod %s: %s", err, pod.Name, s.DiagnosePod(pod.Pod))
	case errors.Is(err, kube.ErrTimeout) && pod.Spec.NodeName != "" && len(pod.Status.PodIPs) == 0:
		if requested := networks.DescribeRequestedAddresses(); requested != "" {
			return fmt.Errorf("%w; the Pod requested %s, but got no address", err, requested)
		}
	}
	return err
}
