package main

import (
	"context"
	"fmt"

	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/bench/report"
)

// disksPerVM is the number of disks of each copied VM.
const disksPerVM = 2

// scale measures the lifecycle of a VM with increasing numbers of VMs of the same director in the same namespace.
func (b bench) scale(ctx context.Context, env *benchenv.Env, results *report.Results) error {
	results.Scale = nil
	const namespace = "scale"
	if err := benchenv.CreateNamespace(ctx, env.Client, namespace); err != nil {
		return err
	}
	recorder, err := newCostRecorder(env, namespace)
	if err != nil {
		return err
	}
	defer recorder.proxy.Close()
	template, err := createTemplate(ctx, env.Client, recorder.direct, namespace, templateAgentID, plainVM())
	if err != nil {
		return err
	}
	if results.Objects, err = objectSizes(ctx, env.Plane, namespace, template); err != nil {
		return err
	}
	copies, existing := vmCopies{plane: env.Plane, client: env.Client, namespace: namespace, template: template, name: "scale", disks: disksPerVM}, 0
	for _, vms := range b.vmCounts {
		b.logf("scale: %d VMs with %d disks each", vms, disksPerVM)
		if err := copies.create(ctx, existing, vms); err != nil {
			return err
		}
		existing = vms
		size := report.ScaleResult{Name: "one namespace", VMs: vms, Disks: vms * disksPerVM}
		if size.Methods, err = b.measureLifecycles(ctx, recorder, fmt.Sprintf("scale: %d VMs", vms), plainVM()); err != nil {
			return err
		}
		results.Scale = append(results.Scale, size)
	}
	return nil
}

// measureLifecycles runs lifecycles of a VM. It records the requests of two of them, and the times of the others.
func (b bench) measureLifecycles(ctx context.Context, recorder *costRecorder, title string, kind vmKind) ([]report.Method, error) {
	recorder.methods = nil
	// The first lifecycle is not recorded: it warms up the API server's caches after the copies were created.
	unrecorded := func(ctx context.Context, result any, method string, arguments ...any) error {
		_, err := recorder.direct.Call(ctx, result, method, arguments...)
		return err
	}
	for n, call := range append([]callFunc{unrecorded, recorder.recordRequests, recorder.recordRequests}, repeat(recorder.recordTime, b.sizes.lifecycles)...) {
		b.logf("%s, lifecycle %d of %d", title, n+1, b.sizes.lifecycles+3)
		if err := runLifecycle(ctx, call, fmt.Sprintf("life-%d", n), kind); err != nil {
			return nil, err
		}
	}
	return recorder.methods, nil
}

func repeat(call callFunc, times int) []callFunc {
	calls := make([]callFunc, times)
	for i := range calls {
		calls[i] = call
	}
	return calls
}
