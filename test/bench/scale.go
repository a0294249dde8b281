package main

import (
	"context"
	"fmt"

	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/bench/figures"
)

// disksPerVM is how many disks each machine of a crowd has.
const disksPerVM = 2

// scale measures a machine's whole life in crowds of more and more machines of the same director in the same namespace.
func (b bench) scale(ctx context.Context, s *benchenv.Env, results *figures.Results) error {
	results.Scale = nil
	const namespace = "crowd"
	if err := benchenv.CreateNamespace(ctx, s.Client, namespace); err != nil {
		return err
	}
	recorder, err := newCostRecorder(s, namespace)
	if err != nil {
		return err
	}
	defer recorder.proxy.Close()
	template, err := createTemplate(ctx, s.Client, recorder.direct, namespace, templateAgent, plainVM())
	if err != nil {
		return err
	}
	if results.Objects, err = objectSizes(ctx, s.Plane, namespace, template); err != nil {
		return err
	}
	copies, existing := vmCopies{plane: s.Plane, client: s.Client, namespace: namespace, template: template, name: "crowd", disks: disksPerVM}, 0
	for _, machines := range b.vmCounts {
		b.logf("scale: %d machines with %d disks each", machines, disksPerVM)
		if err := copies.create(ctx, existing, machines); err != nil {
			return err
		}
		existing = machines
		size := figures.ScaleResult{Name: "a crowd", Machines: machines, Disks: machines * disksPerVM}
		if size.Methods, err = b.measureLifecycles(ctx, recorder, fmt.Sprintf("scale: %d machines", machines), plainVM()); err != nil {
			return err
		}
		results.Scale = append(results.Scale, size)
	}
	return nil
}

// measureLifecycles measures some lives of a machine, two of them by their requests.
func (b bench) measureLifecycles(ctx context.Context, recorder *costRecorder, what string, k vmKind) ([]figures.Method, error) {
	recorder.methods = nil
	// The first is not noted: the API server has yet to see what has changed.
	unnoted := func(ctx context.Context, result any, method string, arguments ...any) error {
		_, err := recorder.direct.Call(ctx, result, method, arguments...)
		return err
	}
	for n, call := range append([]callFunc{unnoted, recorder.recordRequests, recorder.recordRequests}, repeat(recorder.recordTime, b.sizes.lifecycles)...) {
		b.logf("%s, life %d of %d", what, n+1, b.sizes.lifecycles+3)
		if err := runLifecycle(ctx, call, fmt.Sprintf("life-%d", n), k); err != nil {
			return nil, err
		}
	}
	return recorder.methods, nil
}

func repeat(call callFunc, times int) []callFunc {
	all := make([]callFunc, times)
	for i := range all {
		all[i] = call
	}
	return all
}
