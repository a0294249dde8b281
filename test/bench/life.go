package main

import (
	"context"
	"fmt"
	"path/filepath"

	"bosh-kubernetes-cpi/test/apiproxy"
	"bosh-kubernetes-cpi/test/bench/figures"
	"bosh-kubernetes-cpi/test/bench/stand"
	"bosh-kubernetes-cpi/test/counted"
)

// ledger collects what calls cost, by method: time by a director that speaks to the API server itself, and requests by one that
// does so through a counting proxy.
type ledger struct {
	direct, counting stand.Director
	proxy            *apiproxy.Proxy
	methods          []figures.Method
}

func newLedger(s *stand.Stand, namespace string) (*ledger, error) {
	direct, err := stand.NewDirector(s.Programs, s.Dir, namespace, s.Plane.Kubeconfig("admin"), namespace)
	if err != nil {
		return nil, err
	}
	proxy, err := apiproxy.New(s.Plane.Kubeconfig("admin"))
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(s.Dir, namespace+"-proxy.kubeconfig")
	if err := proxy.Kubeconfig(kubeconfig, namespace); err != nil {
		return nil, err
	}
	counting, err := stand.NewDirector(s.Programs, s.Dir, namespace+"-proxy", kubeconfig, namespace)
	return &ledger{direct: direct, counting: counting, proxy: proxy}, err
}

// caller makes a call and notes what it cost.
type caller func(ctx context.Context, result any, method string, arguments ...any) error

// timed notes time, CPU and memory.
func (l *ledger) timed(ctx context.Context, result any, method string, arguments ...any) error {
	usage, err := l.direct.Call(ctx, result, method, arguments...)
	if err != nil {
		return err
	}
	l.of(method).Add(usage)
	return nil
}

// counted notes requests and bytes. A list of all that there is, is an error.
func (l *ledger) counted(ctx context.Context, result any, method string, arguments ...any) error {
	var requests counted.Requests
	l.proxy.Reset(requests.Fault())
	defer l.proxy.Reset(nil)
	if _, err := l.counting.Call(ctx, result, method, arguments...); err != nil {
		return err
	}
	if all := requests.Unfiltered(); len(all) > 0 {
		return fmt.Errorf("%s asks for all that there is: %v", method, all)
	}
	// Where a call finds done what it would have waited for, it sends fewer: those are the same every time.
	of := l.of(method)
	if sent := requests.Sent(); of.Requests == nil || len(sent) < len(of.Requests) {
		of.Requests, of.Bytes = sent, requests.Bytes()
	}
	return nil
}

// of is the method's entry. It is made by the first call, so that methods stand in the order of calls.
func (l *ledger) of(method string) *figures.Method {
	for i := range l.methods {
		if l.methods[i].Name == method {
			return &l.methods[i]
		}
	}
	l.methods = append(l.methods, figures.Method{Name: method})
	return &l.methods[len(l.methods)-1]
}

// live makes a machine and a disk and takes them away, by calls of each kind.
func live(ctx context.Context, call caller, agent string, k kind) error {
	vm, disk, snapshot := vmOf(agent), "", ""
	if err := call(ctx, nil, "create_vm", agent, stemcell, k.properties, onDynamic(), []string{}, k.env); err != nil {
		return err
	}
	if err := call(ctx, nil, "set_vm_metadata", vm, map[string]any{"job": "api", "index": "0", "deployment": "cf"}); err != nil {
		return err
	}
	if err := call(ctx, &disk, "create_disk", 64, map[string]any{}, vm); err != nil {
		return err
	}
	for _, method := range []string{"attach_disk", "has_vm", "get_disks", "detach_disk"} {
		arguments := []any{vm}
		if method == "attach_disk" || method == "detach_disk" {
			arguments = append(arguments, disk)
		}
		if err := call(ctx, nil, method, arguments...); err != nil {
			return err
		}
	}
	if err := call(ctx, &snapshot, "snapshot_disk", disk, map[string]any{}); err != nil {
		return err
	}
	for _, last := range [][]any{{"delete_snapshot", snapshot}, {"delete_vm", vm}, {"delete_disk", disk}} {
		if err := call(ctx, nil, last[0].(string), last[1]); err != nil {
			return err
		}
	}
	return nil
}
