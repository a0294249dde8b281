package machine

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

// groupOf returns the instance group's name, which the director has put into env.bosh.group; "" for a
// VM without one.
func groupOf(env json.RawMessage) (string, error) {
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

// applyGroup puts on the machine what it is part of: its instance group and its Services.
func (p Properties) applyGroup(vm *manifest.VM, env json.RawMessage, networks network.Networks) (err error) {
	if vm.Group, err = groupOf(env); err != nil {
		return err
	}
	if vm.Budget, err = p.DisruptionBudget.budget(vm.Group); err != nil {
		return err
	}
	vm.Services, err = servicesOf(vm.Name, p.Services, networks)
	return err
}

// budget checks the disruption budget for this group.
func (d *DisruptionBudget) budget(group string) (*manifest.Budget, error) {
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
	return &manifest.Budget{MinAvailable: d.MinAvailable, MaxUnavailable: d.MaxUnavailable}, nil
}

type budgetPlan = kube.Plan[*policyv1.PodDisruptionBudget]

// bringBudget makes the machine a member of its group's disruption budget.
func (s *Session) bringBudget(vm manifest.VM, pod *corev1.Pod) error {
	if vm.Budget == nil {
		return nil
	}
	budgets, err := s.Budgets()
	if err != nil {
		return err
	}
	join := func(name string, build func() (*policyv1.PodDisruptionBudget, error)) error {
		err := budgets.Converge(s.Ctx, name, func(left *policyv1.PodDisruptionBudget, exists bool) (plan budgetPlan, err error) {
			if exists {
				if err := s.checkOurs("PodDisruptionBudget", left); err != nil {
					return plan, err
				}
			}
			if plan.Create, err = build(); err != nil || !exists {
				return plan, err
			}
			plan.Patch, err = manifest.JoinBudget(left, plan.Create)
			return plan, err
		})
		if err != nil {
			return fmt.Errorf("disruption budget of group %s: %w", vm.Group, err)
		}
		return nil
	}
	err = join(manifest.BudgetName(vm.Group), func() (*policyv1.PodDisruptionBudget, error) {
		machines, err := s.countGroup(*vm.Budget, pod)
		return vm.Budget.Object(vm, pod, machines), err
	})
	if err != nil {
		return err
	}
	return join(manifest.DiskBudgetName(vm.Group), func() (*policyv1.PodDisruptionBudget, error) {
		return manifest.DiskBudget(vm, pod), nil
	})
}

// countGroup counts the machines of the Pod's group that stay, when the budget needs that. It is done
// after the budget was read: a budget that changes in between is read and counted again, so that of
// many calls at once the last is right.
func (s *Session) countGroup(budget manifest.Budget, pod *corev1.Pod) (int, error) {
	if !budget.Counts() {
		return 0, nil
	}
	group := manifest.InGroup(pod.Labels[manifest.LabelGroup], pod.Labels[manifest.LabelDirector])
	return s.CountRunning(s.Ctx, group)
}

// LeaveBudget makes the group's disruption budget right for one machine less. The machine's deletion
// has begun. With the last machine, the garbage collector takes the budget away.
func (s *Session) LeaveBudget(pod *corev1.Pod) error {
	budget := manifest.BudgetOf(pod)
	if budget == nil || !budget.Counts() {
		return nil
	}
	budgets, err := s.Budgets()
	if err != nil {
		return err
	}
	director := pod.Labels[manifest.LabelDirector]
	err = budgets.Converge(s.Ctx, manifest.BudgetName(pod.Annotations[manifest.LabelGroup]),
		func(left *policyv1.PodDisruptionBudget, exists bool) (plan budgetPlan, err error) {
			if !exists || !manifest.Belongs(left, director) || manifest.BudgetOf(left) == nil {
				return plan, errNothingToLeave
			}
			machines, err := s.countGroup(*budget, pod)
			if err != nil {
				return plan, err
			}
			plan.Patch, err = manifest.Recount(left, machines)
			return plan, err
		})
	if errors.Is(err, errNothingToLeave) {
		return nil
	}
	return err
}

var errNothingToLeave = errors.New("the group has no disruption budget")
