package main

import (
	"context"
	"fmt"

	"bosh-kubernetes-cpi/test/bench/figures"
	"bosh-kubernetes-cpi/test/bench/stand"
)

// disksEach is how many disks each machine of a crowd has.
const disksEach = 2

// scale measures a machine's whole life in crowds of more and more machines of the same director in the same namespace.
func (b bench) scale(ctx context.Context, s *stand.Stand, results *figures.Results) error {
	results.Scale = nil
	const namespace = "crowd"
	if err := stand.Namespace(ctx, s.Client, namespace); err != nil {
		return err
	}
	books, err := newLedger(s, namespace)
	if err != nil {
		return err
	}
	defer books.proxy.Close()
	planted, err := plant(ctx, s.Client, books.direct, namespace, seedAgent, plain())
	if err != nil {
		return err
	}
	if results.Objects, err = objectSizes(ctx, s.Plane, namespace, planted); err != nil {
		return err
	}
	others, there := crowd{plane: s.Plane, client: s.Client, namespace: namespace, seed: planted, name: "crowd", disks: disksEach}, 0
	for _, machines := range b.crowds {
		b.tell("scale: %d machines with %d disks each", machines, disksEach)
		if err := others.grow(ctx, there, machines); err != nil {
			return err
		}
		there = machines
		size := figures.Size{Name: "a crowd", Machines: machines, Disks: machines * disksEach}
		if size.Methods, err = b.measureLives(ctx, books, fmt.Sprintf("scale: %d machines", machines), plain()); err != nil {
			return err
		}
		results.Scale = append(results.Scale, size)
	}
	return nil
}

// measureLives measures some lives of a machine, two of them by their requests.
func (b bench) measureLives(ctx context.Context, books *ledger, what string, k kind) ([]figures.Method, error) {
	books.methods = nil
	// The first is not noted: the API server has yet to see what has changed.
	unnoted := func(ctx context.Context, result any, method string, arguments ...any) error {
		_, err := books.direct.Call(ctx, result, method, arguments...)
		return err
	}
	for n, by := range append([]caller{unnoted, books.counted, books.counted}, repeated(books.timed, b.sizes.lives)...) {
		b.tell("%s, life %d of %d", what, n+1, b.sizes.lives+3)
		if err := live(ctx, by, fmt.Sprintf("life-%d", n), k); err != nil {
			return nil, err
		}
	}
	return books.methods, nil
}

func repeated(by caller, times int) []caller {
	all := make([]caller, times)
	for i := range all {
		all[i] = by
	}
	return all
}
