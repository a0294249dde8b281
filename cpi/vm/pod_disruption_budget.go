package vm

import (
	"errors"
	"fmt"
	"slices"

	policyv1 "k8s.io/api/policy/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
)

// applyGroupAndServices sets the disruption budget of the VM's instance group, and the Services in vm.
func (p Properties) applyGroupAndServices(vm *manifest.VM, networks network.Networks) (err error) {
	if err := checkDisruptionBudget(p.DisruptionBudget, vm.Group); err != nil {
		return err
	}
	vm.Budget = p.DisruptionBudget
	vm.Services, err = buildServices(vm.Name, p.Services, networks)
	return err
}

// checkDisruptionBudget validates the disruption budget of the instance group, or nil.
func checkDisruptionBudget(d *manifest.DisruptionBudget, group string) error {
	const key = "cloud_properties.disruption_budget"
	switch {
	case d == nil:
		return nil
	case (d.MinAvailable == nil) == (d.MaxUnavailable == nil):
		return call.InvalidPropertyf("%s requires exactly one of min_available and max_unavailable", key)
	case d.MinAvailable != nil && *d.MinAvailable < 0:
		return call.InvalidPropertyf("%s.min_available must be at least 0", key)
	case d.MaxUnavailable != nil && *d.MaxUnavailable < 1:
		return call.InvalidPropertyf("%s.max_unavailable must be at least 1; with 0, nodes that run VMs of the group could "+
			"never be drained", key)
	case group == "":
		return call.InvalidPropertyf("%s requires env.bosh.group, the name of the instance group", key)
	}
	return nil
}

type pdbPlan = kube.Plan[*policyv1.PodDisruptionBudget]

// ensurePDBs ensures that the PodDisruptionBudgets of the VM's instance group exist: one for the VM Pods, and one for the attachment
// Pods. The VM Pod becomes one of their owners.
func (s *Session) ensurePDBs(vm manifest.VM, pod manifest.VMPod) error {
	if vm.Budget == nil {
		return nil
	}
	pdbs := s.PodDisruptionBudgets()
	join := func(name string, build func() (*policyv1.PodDisruptionBudget, error)) error {
		err := pdbs.CreateOrPatch(s.Ctx, name, func(existing *policyv1.PodDisruptionBudget, exists bool) (plan pdbPlan, err error) {
			if exists {
				if err := s.checkDirector("PodDisruptionBudget", existing); err != nil {
					return plan, err
				}
			}
			if plan.Create, err = build(); err == nil && exists {
				plan.Patch = manifest.JoinPDBPatch(existing, plan.Create)
			}
			return plan, err
		})
		if err != nil {
			return fmt.Errorf("cannot apply PodDisruptionBudget %s of instance group %s: %w", name, vm.Group, err)
		}
		return nil
	}
	err := join(manifest.PDBName(vm.Group), func() (*policyv1.PodDisruptionBudget, error) {
		vmCount, err := s.countGroupVMs(*vm.Budget, pod)
		return vm.Budget.Object(vm, pod, vmCount), err
	})
	if err != nil {
		return err
	}
	return join(manifest.AttachmentPDBName(vm.Group), func() (*policyv1.PodDisruptionBudget, error) {
		return manifest.AttachmentPDB(vm, pod), nil
	})
}

// countGroupVMs returns the number of VMs in the Pod's group that are not being deleted, or 0 if the budget does not depend on it.
// It must be called after the PodDisruptionBudget was read. If the PodDisruptionBudget changes in the meantime, it is read and the
// VMs are counted again, so that the last of several concurrent calls sets the correct number.
func (s *Session) countGroupVMs(budget manifest.DisruptionBudget, pod manifest.VMPod) (int, error) {
	if !budget.DependsOnGroupSize() {
		return 0, nil
	}
	label, director := manifest.GroupLabelOf(pod), manifest.DirectorOf(pod)
	vms, err := s.ListActivePods(s.Ctx, manifest.VMGroupSelector(label, director))
	if err != nil {
		return 0, err
	}
	templates, err := s.PodTemplates.List(s.Ctx, kube.Selection{Labels: manifest.DirectorSelector(director)})
	if err != nil {
		return 0, err
	}
	for _, template := range templates.Items { // VMs with disk_strategy: recreate, which may have no Pod
		if template.DeletionTimestamp == nil && manifest.GroupLabelOf(&template.Template) == label && !slices.Contains(vms, template.Name) {
			vms = append(vms, template.Name)
		}
	}
	return len(vms), nil
}

// UpdatePDBAfterDelete updates the PodDisruptionBudget of the group to the number of remaining VMs. It must be called after the deletion
// of the VM was requested. The garbage collector deletes the PodDisruptionBudget after the last VM.
func (s *Session) UpdatePDBAfterDelete(pod manifest.VMPod) error {
	group, director := manifest.GroupNameOf(pod), manifest.DirectorOf(pod)
	if group == "" {
		return nil
	}
	err := s.PodDisruptionBudgets().CreateOrPatch(s.Ctx, manifest.PDBName(group),
		func(existing *policyv1.PodDisruptionBudget, exists bool) (plan pdbPlan, err error) {
			if !exists || !manifest.BelongsTo(existing, director) {
				return plan, nil
			}
			budget := manifest.DisruptionBudgetOf(existing) // that of the group's newest VM, which may differ from this one's
			if budget == nil {
				return plan, nil
			}
			vmCount, err := s.countGroupVMs(*budget, pod)
			plan.Patch = manifest.ResizePDBPatch(existing, vmCount)
			return plan, err
		})
	if errors.Is(err, kube.ErrDenied) && manifest.DisruptionBudgetOf(pod) == nil {
		return nil // the permission is only required for disruption budgets
	}
	return err
}
