package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/bench/figures"
	"bosh-kubernetes-cpi/test/bench/stand"
)

// common is what machines have in common.
type common struct {
	name, namespace string
	kind            kind
	// share makes what is there belong to all these machines.
	share func(context.Context, kubernetes.Interface, string, []metav1.OwnerReference) error
}

// shared measures what a machine costs that has something in common with many others: a budget, or a Service. Such an object
// belongs to all of them, and names each.
func (b bench) shared(ctx context.Context, s *stand.Stand, results *figures.Results) error {
	results.Shared = nil
	for _, each := range []common{
		{"a group with a budget", "group", budgeted(), shareBudgets},
		{"a Service", "service", serving(), shareService},
	} {
		sizes, err := b.measureShared(ctx, s, each)
		if err != nil {
			return err
		}
		results.Shared = append(results.Shared, sizes...)
	}
	return nil
}

func (b bench) measureShared(ctx context.Context, s *stand.Stand, each common) (sizes []figures.Size, err error) {
	if err := stand.Namespace(ctx, s.Client, each.namespace); err != nil {
		return nil, err
	}
	books, err := newLedger(s, each.namespace)
	if err != nil {
		return nil, err
	}
	defer books.proxy.Close()
	planted, err := plant(ctx, s.Client, books.direct, each.namespace, seedAgent, each.kind)
	if err != nil {
		return nil, err
	}
	others := crowd{plane: s.Plane, client: s.Client, namespace: each.namespace, seed: planted, name: "shared"}
	for i, machines := range []int{1, b.group} {
		b.tell("%s: shared by %d machines", each.name, machines)
		err := s.Still(ctx, func() error {
			if err := others.grow(ctx, i, machines); err != nil {
				return err
			}
			owners, err := ownersIn(ctx, s.Client, each.namespace)
			if err != nil {
				return err
			}
			return each.share(ctx, s.Client, each.namespace, owners)
		})
		if err != nil {
			return nil, err
		}
		size := figures.Size{Name: each.name, Machines: machines}
		if size.Methods, err = b.measureMembers(ctx, books, each.kind); err != nil {
			return nil, err
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

func budgeted() kind {
	k := plain()
	k.properties["disruption_budget"] = map[string]any{"max_unavailable": 1}
	return k
}

func serving() kind {
	k := plain()
	k.properties["services"] = []any{map[string]any{"name": "web", "ports": []any{80}}}
	return k
}

// measureMembers makes machines that share, and takes them away.
func (b bench) measureMembers(ctx context.Context, books *ledger, k kind) ([]figures.Method, error) {
	books.methods = nil
	for n, call := range append([]caller{books.counted, books.counted}, repeated(books.timed, b.sizes.lives)...) {
		agent := fmt.Sprintf("member-%d", n)
		if err := call(ctx, nil, "create_vm", agent, stemcell, k.properties, onDynamic(), []string{}, k.env); err != nil {
			return nil, err
		}
		if err := call(ctx, nil, "delete_vm", vmOf(agent)); err != nil {
			return nil, err
		}
	}
	return books.methods, nil
}

// ownersIn are all machines of the namespace, as owners.
func ownersIn(ctx context.Context, client kubernetes.Interface, namespace string) ([]metav1.OwnerReference, error) {
	machines, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: manifest.LabelRole + "=" + manifest.RoleVM})
	if err != nil {
		return nil, err
	}
	owners := make([]metav1.OwnerReference, 0, len(machines.Items))
	for i := range machines.Items {
		owners = append(owners, manifest.Owner(&machines.Items[i]))
	}
	return owners, nil
}

func shareBudgets(ctx context.Context, client kubernetes.Interface, namespace string, owners []metav1.OwnerReference) error {
	budgets := client.PolicyV1().PodDisruptionBudgets(namespace)
	all, err := budgets.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, budget := range all.Items {
		budget.OwnerReferences = owners
		if _, err := budgets.Update(ctx, &budget, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func shareService(ctx context.Context, client kubernetes.Interface, namespace string, owners []metav1.OwnerReference) error {
	service, err := client.CoreV1().Services(namespace).Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	service.OwnerReferences = owners
	_, err = client.CoreV1().Services(namespace).Update(ctx, service, metav1.UpdateOptions{})
	return err
}
