package main

import (
	"context"
	"fmt"
	"path/filepath"

	"bosh-kubernetes-cpi/test/apiproxy"
	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/bench/figures"
	"bosh-kubernetes-cpi/test/requestlog"
)

// costRecorder collects the cost of calls by method: times with a director that is directly connected to the API server, and requests
// with one that is connected through a counting proxy.
type costRecorder struct {
	direct, counting benchenv.Director
	proxy            *apiproxy.Proxy
	methods          []figures.Method
}

func newCostRecorder(s *benchenv.Env, namespace string) (*costRecorder, error) {
	direct, err := benchenv.NewDirector(s.Programs, s.Dir, namespace, s.Plane.Kubeconfig("admin"), namespace)
	if err != nil {
		return nil, err
	}
	proxy, err := apiproxy.New(s.Plane.Kubeconfig("admin"))
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(s.Dir, namespace+"-proxy.kubeconfig")
	if err := proxy.WriteKubeconfig(kubeconfig, namespace); err != nil {
		return nil, err
	}
	counting, err := benchenv.NewDirector(s.Programs, s.Dir, namespace+"-proxy", kubeconfig, namespace)
	return &costRecorder{direct: direct, counting: counting, proxy: proxy}, err
}

// callFunc makes a call and records its cost.
type callFunc func(ctx context.Context, result any, method string, arguments ...any) error

// recordTime records wall time, CPU time and memory.
func (l *costRecorder) recordTime(ctx context.Context, result any, method string, arguments ...any) error {
	usage, err := l.direct.Call(ctx, result, method, arguments...)
	if err != nil {
		return err
	}
	l.method(method).Add(usage)
	return nil
}

// recordRequests records requests and bytes. A list or watch without a selector is an error.
func (l *costRecorder) recordRequests(ctx context.Context, result any, method string, arguments ...any) error {
	var requests requestlog.Recorder
	l.proxy.Reset(requests.Fault())
	defer l.proxy.Reset(nil)
	if _, err := l.counting.Call(ctx, result, method, arguments...); err != nil {
		return err
	}
	if all := requests.Unfiltered(); len(all) > 0 {
		return fmt.Errorf("%s lists all objects: %v", method, all)
	}
	// A call that does not need to wait sends fewer requests, and always the same ones.
	entry := l.method(method)
	if sent := requests.Sent(); entry.Requests == nil || len(sent) < len(entry.Requests) {
		entry.Requests, entry.Bytes = sent, requests.Bytes()
	}
	return nil
}

// method returns the entry of the method. It creates missing entries, in the order of the calls.
func (l *costRecorder) method(method string) *figures.Method {
	for i := range l.methods {
		if l.methods[i].Name == method {
			return &l.methods[i]
		}
	}
	l.methods = append(l.methods, figures.Method{Name: method})
	return &l.methods[len(l.methods)-1]
}

// runLifecycle creates, uses and deletes a VM and a disk with calls of each method.
func runLifecycle(ctx context.Context, call callFunc, agent string, k vmKind) error {
	vm, disk, snapshot := vmCID(agent), "", ""
	if err := call(ctx, nil, "create_vm", agent, stemcell, k.properties, dynamicNetwork(), []string{}, k.env); err != nil {
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
