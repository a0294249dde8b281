package vm

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// DisruptionBudget says how many machines of an instance group a drain must leave or may take. Exactly
// one of the two is given.
type DisruptionBudget struct {
	MinAvailable   *int32 `json:"min_available"`
	MaxUnavailable *int32 `json:"max_unavailable"`
}

// instanceGroupOf returns the instance group's name, which the director has put into env.bosh.group; "" for a
// VM without one.
func instanceGroupOf(env json.RawMessage) (string, error) {
	var known struct {
		BOSH struct {
			Group string `json:"group"`
		} `json:"bosh"`
	}
	if len(env) == 0 {
		return "", nil
	}
	if err := json.Unmarshal(env, &known); err != nil {
		return "", call.Invalid("env.bosh.group cannot be read: %w", err)
	}
	return known.BOSH.Group, nil
}

// applyGroupAndServices puts on the machine what it is part of: its instance group and its Services.
func (p Properties) applyGroupAndServices(vm *manifest.VM, env json.RawMessage, networks network.Networks) (err error) {
	if vm.Group, err = instanceGroupOf(env); err != nil {
		return err
	}
	if vm.Budget, err = p.DisruptionBudget.build(vm.Group); err != nil {
		return err
	}
	vm.Services, err = buildServices(vm.Name, p.Services, networks)
	return err
}

// build checks the disruption budget for this group.
func (d *DisruptionBudget) build(group string) (*manifest.DisruptionBudget, error) {
	const key = "cloud_properties.disruption_budget"
	if d == nil {
		return nil, nil
	}
	switch {
	case (d.MinAvailable == nil) == (d.MaxUnavailable == nil):
		return nil, call.Invalid("%s takes either min_available or max_unavailable", key)
	case d.MinAvailable != nil && *d.MinAvailable < 0:
		return nil, call.Invalid("%s.min_available must not be less than 0", key)
	case d.MaxUnavailable != nil && *d.MaxUnavailable < 1:
		return nil, call.Invalid("%s.max_unavailable must be at least 1: with 0, no node of the group could ever be drained", key)
	case group == "":
		return nil, call.Invalid("%s needs env.bosh.group, which names the instance group", key)
	}
	return &manifest.DisruptionBudget{MinAvailable: d.MinAvailable, MaxUnavailable: d.MaxUnavailable}, nil
}

type pdbPlan = kube.Plan[*policyv1.PodDisruptionBudget]

// ensurePDBs makes the machine a member of its group's disruption budget.
func (s *Session) ensurePDBs(vm manifest.VM, pod *corev1.Pod) error {
	if vm.Budget == nil {
		return nil
	}
	pdbs, err := s.PodDisruptionBudgets()
	if err != nil {
		return err
	}
	join := func(name string, build func() (*policyv1.PodDisruptionBudget, error)) error {
		err := pdbs.CreateOrPatch(s.Ctx, name, func(existing *policyv1.PodDisruptionBudget, exists bool) (plan pdbPlan, err error) {
			if exists {
				if err := s.checkDirector("PodDisruptionBudget", existing); err != nil {
					return plan, err
				}
			}
			if plan.Create, err = build(); err != nil || !exists {
				return plan, err
			}
			plan.Patch, err = manifest.JoinPDB(existing, plan.Create)
			return plan, err
		})
		if err != nil {
			return fmt.Errorf("disruption budget of group %s: %w", vm.Group, err)
		}
		return nil
	}
	err = join(manifest.PDBName(vm.Group), func() (*policyv1.PodDisruptionBudget, error) {
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

// countGroupVMs counts the machines of the Pod's group that stay, when the budget needs that. It is done
// after the budget was read: a budget that changes in between is read and counted again, so that of
// many calls at once the last is right.
func (s *Session) countGroupVMs(budget manifest.DisruptionBudget, pod *corev1.Pod) (int, error) {
	if !budget.DependsOnGroupSize() {
		return 0, nil
	}
	group := manifest.VMGroupSelector(pod.Labels[manifest.LabelGroup], pod.Labels[manifest.LabelDirector])
	return s.CountActive(s.Ctx, group)
}

// UpdatePDBAfterDelete makes the group's disruption budget right for one machine less. The machine's deletion
// has begun. With the last machine, the garbage collector takes the budget away.
func (s *Session) UpdatePDBAfterDelete(pod *corev1.Pod) error {
	pdb := manifest.DisruptionBudgetOf(pod)
	if pdb == nil || !pdb.DependsOnGroupSize() {
		return nil
	}
	pdbs, err := s.PodDisruptionBudgets()
	if err != nil {
		return err
	}
	director := pod.Labels[manifest.LabelDirector]
	err = pdbs.CreateOrPatch(s.Ctx, manifest.PDBName(pod.Annotations[manifest.LabelGroup]),
		func(existing *policyv1.PodDisruptionBudget, exists bool) (plan pdbPlan, err error) {
			if !exists || !manifest.BelongsTo(existing, director) || manifest.DisruptionBudgetOf(existing) == nil {
				return plan, errNoPDB
			}
			vmCount, err := s.countGroupVMs(*pdb, pod)
			if err != nil {
				return plan, err
			}
			plan.Patch, err = manifest.ResizePDB(existing, vmCount)
			return plan, err
		})
	if errors.Is(err, errNoPDB) {
		return nil
	}
	return err
}

var errNoPDB = errors.New("the group has no disruption budget")
