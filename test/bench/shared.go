package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/bench/report"
)

// sharedCase is a kind of VM that shares an object with others.
type sharedCase struct {
	name, namespace string
	kind            vmKind
	// share makes these VMs owners of the object.
	share func(context.Context, kubernetes.Interface, string, []metav1.OwnerReference) error
}

// shared measures the cost of calls for a VM that shares a PodDisruptionBudget or a Service with many others. All VMs are owners of the
// object.
func (b bench) shared(ctx context.Context, env *benchenv.Env, results *report.Results) error {
	results.Shared = nil
	for _, shared := range []sharedCase{
		{"a group with a budget", "group", vmWithPDB(), sharePDBs},
		{"a Service", "service", vmWithService(), shareService},
	} {
		sizes, err := b.measureShared(ctx, env, shared)
		if err != nil {
			return err
		}
		results.Shared = append(results.Shared, sizes...)
	}
	return nil
}

func (b bench) measureShared(ctx context.Context, env *benchenv.Env, shared sharedCase) (sizes []report.ScaleResult, err error) {
	if err := benchenv.CreateNamespace(ctx, env.Client, shared.namespace); err != nil {
		return nil, err
	}
	recorder, err := newCostRecorder(env, shared.namespace)
	if err != nil {
		return nil, err
	}
	defer recorder.proxy.Close()
	template, err := createTemplate(ctx, env.Client, recorder.direct, shared.namespace, templateAgentID, shared.kind)
	if err != nil {
		return nil, err
	}
	copies := vmCopies{plane: env.Plane, client: env.Client, namespace: shared.namespace, template: template, name: "shared"}
	for i, vms := range []int{1, b.sharedVMs} {
		b.logf("%s: shared by %d VMs", shared.name, vms)
		err := env.WithoutControllers(ctx, func() error {
			if err := copies.create(ctx, i, vms); err != nil {
				return err
			}
			owners, err := listOwners(ctx, env.Client, shared.namespace)
			if err != nil {
				return err
			}
			return shared.share(ctx, env.Client, shared.namespace, owners)
		})
		if err != nil {
			return nil, err
		}
		size := report.ScaleResult{Name: shared.name, VMs: vms}
		if size.Methods, err = b.measureMembers(ctx, recorder, fmt.Sprintf("member-%d", i), shared.kind); err != nil {
			return nil, err
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

func vmWithPDB() vmKind {
	kind := plainVM()
	kind.properties["disruption_budget"] = map[string]any{"max_unavailable": 1}
	return kind
}

func vmWithService() vmKind {
	kind := plainVM()
	kind.properties["services"] = []any{map[string]any{"name": "web", "ports": []any{80}}}
	return kind
}

// measureMembers creates and deletes VMs that share the object. It records the requests of some of them, and the times of the others. A call
// repeats a request if a controller changed the object at the same time, so that several VMs are needed to find the smallest number. The
// name must be new: the garbage collector may not have removed the Secrets of earlier VMs.
func (b bench) measureMembers(ctx context.Context, recorder *costRecorder, name string, kind vmKind) ([]report.Method, error) {
	recorder.methods = nil
	for n, call := range append(repeat(recorder.recordRequests, 6), repeat(recorder.recordTime, b.sizes.lifecycles)...) {
		agentID := fmt.Sprintf("%s-%d", name, n)
		if err := call(ctx, nil, "create_vm", agentID, stemcell, kind.properties, dynamicNetwork(), []string{}, kind.env); err != nil {
			return nil, err
		}
		if err := call(ctx, nil, "delete_vm", vmCID(agentID)); err != nil {
			return nil, err
		}
	}
	return recorder.methods, nil
}

// listOwners returns owner references to all VM Pods of the namespace.
func listOwners(ctx context.Context, client kubernetes.Interface, namespace string) ([]metav1.OwnerReference, error) {
	vmPods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: manifest.LabelRole + "=" + manifest.RoleVM})
	if err != nil {
		return nil, err
	}
	owners := make([]metav1.OwnerReference, 0, len(vmPods.Items))
	for i := range vmPods.Items {
		owners = append(owners, manifest.VMPod{Pod: &vmPods.Items[i]}.OwnerReference())
	}
	return owners, nil
}

func sharePDBs(ctx context.Context, client kubernetes.Interface, namespace string, owners []metav1.OwnerReference) error {
	pdbs := client.PolicyV1().PodDisruptionBudgets(namespace)
	list, err := pdbs.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pdb := range list.Items {
		pdb.OwnerReferences = owners
		if _, err := pdbs.Update(ctx, &pdb, metav1.UpdateOptions{}); err != nil {
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
