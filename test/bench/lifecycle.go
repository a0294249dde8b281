package main

import (
	"context"
	"fmt"
	"path/filepath"

	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/bench/report"
	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/requestlog"
)

// costRecorder records the cost of calls by method. It measures times with a director that is directly connected to the API server, and
// requests with a director that is connected through a counting proxy.
type costRecorder struct {
	direct, counting benchenv.Director
	proxy            *apiproxy.Proxy
	methods          []report.Method
}

func newCostRecorder(env *benchenv.Env, namespace string) (*costRecorder, error) {
	direct, err := benchenv.NewDirector(env.Programs, env.Dir, namespace, env.Plane.Kubeconfig("admin"), namespace, "")
	if err != nil {
		return nil, err
	}
	proxy, err := apiproxy.New(env.Plane.Kubeconfig("admin"))
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(env.Dir, namespace+"-proxy.kubeconfig")
	if err := proxy.WriteKubeconfig(kubeconfig, namespace); err != nil {
		return nil, err
	}
	counting, err := benchenv.NewDirector(env.Programs, env.Dir, namespace+"-proxy", kubeconfig, namespace, "")
	return &costRecorder{direct: direct, counting: counting, proxy: proxy}, err
}

// callFunc makes a call and records its cost.
type callFunc func(ctx context.Context, result any, method string, arguments ...any) error

// recordTime records wall time, CPU time and memory.
func (r *costRecorder) recordTime(ctx context.Context, result any, method string, arguments ...any) error {
	usage, err := r.direct.Call(ctx, result, method, arguments...)
	if err != nil {
		return err
	}
	r.method(method).Add(usage)
	return nil
}

// recordRequests records requests and bytes. A list or watch without a selector is an error.
func (r *costRecorder) recordRequests(ctx context.Context, result any, method string, arguments ...any) error {
	var recorder requestlog.Recorder
	r.proxy.Reset(recorder.Middleware())
	defer r.proxy.Reset(nil)
	if _, err := r.counting.Call(ctx, result, method, arguments...); err != nil {
		return err
	}
	if unfiltered := recorder.Unfiltered(); len(unfiltered) > 0 {
		return fmt.Errorf("%s lists all objects: %v", method, unfiltered)
	}
	// The shortest list is reproducible: a call sends additional requests only while it waits.
	entry := r.method(method)
	if sent := recorder.Requests(); entry.Requests == nil || len(sent) < len(entry.Requests) {
		entry.Requests, entry.Bytes = sent, recorder.Bytes()
	}
	return nil
}

// method returns the entry of the method, and creates it if it does not exist.
func (r *costRecorder) method(name string) *report.Method {
	for i := range r.methods {
		if r.methods[i].Name == name {
			return &r.methods[i]
		}
	}
	r.methods = append(r.methods, report.Method{Name: name})
	return &r.methods[len(r.methods)-1]
}

// runLifecycle creates, uses and deletes a VM and a disk, with one call of each method.
func runLifecycle(ctx context.Context, call callFunc, agentID string, kind vmKind) error {
	vm, disk, snapshot := vmCID(agentID), "", ""
	if err := call(ctx, nil, "create_vm", agentID, stemcell, kind.properties, dynamicNetwork(), []string{}, kind.env); err != nil {
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
	for _, deletion := range [][]string{{"delete_snapshot", snapshot}, {"delete_vm", vm}, {"delete_disk", disk}} {
		if err := call(ctx, nil, deletion[0], deletion[1]); err != nil {
			return err
		}
	}
	return nil
}
