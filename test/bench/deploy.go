package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"bosh-kubernetes-cpi/test/bench/figures"
	"bosh-kubernetes-cpi/test/bench/stand"
)

// deploy measures how long it takes until many machines with a disk each run, by the CPI and by a client that does no more than
// make the same objects and wait.
func (b bench) deploy(ctx context.Context, s *stand.Stand, results *figures.Results) error {
	results.Deploys = nil
	for _, each := range b.deploys {
		machines, workers := each[0], each[1]
		b.tell("deploy: %d machines by %d processes at once", machines, workers)
		namespace := fmt.Sprintf("deploy-%d", machines)
		for _, name := range []string{namespace, namespace + "-bare"} {
			if err := stand.Namespace(ctx, s.Client, name); err != nil {
				return err
			}
		}
		d, err := stand.NewDirector(s.Programs, s.Dir, namespace, s.Plane.Kubeconfig("admin"), namespace)
		if err != nil {
			return err
		}
		planted, err := plant(ctx, s.Client, d, namespace, seedAgent, plain())
		if err != nil {
			return err
		}
		made := figures.Deploy{Machines: machines, Workers: workers}
		var log timesheet
		if made.Seconds, err = together(ctx, machines, workers, func(ctx context.Context, n int) error { return log.machine(ctx, d, n) }); err != nil {
			return err
		}
		log.sum(&made)
		b.tell("deploy: the same objects by a minimal client")
		bare := bareClient{s.Client, namespace + "-bare", planted}
		if made.Bare, err = together(ctx, machines, workers, bare.machine); err != nil {
			return err
		}
		results.Deploys = append(results.Deploys, made)
	}
	return nil
}

// together does it for each number, so many at once, and returns how many seconds all of it took.
func together(ctx context.Context, numbers, workers int, do func(context.Context, int) error) (float64, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	began := time.Now()
	for n := range numbers {
		group.Go(func() error { return do(ctx, n) })
	}
	err := group.Wait()
	return time.Since(began).Seconds(), err
}

// timesheet has the calls of a deploy.
type timesheet struct {
	mutex          sync.Mutex
	calls          []ended
	create, attach figures.Distribution
}

// ended is a call that was made.
type ended struct {
	began, end time.Time
	figures.Usage
}

func (t *timesheet) machine(ctx context.Context, d stand.Director, n int) error {
	agent, disk := fmt.Sprintf("api-%d", n), ""
	for _, call := range []struct {
		result    any
		method    string
		arguments func() []any
	}{
		{nil, "create_vm", func() []any {
			return []any{agent, stemcell, plain().properties, onDynamic(), []string{}, plain().env}
		}},
		{&disk, "create_disk", func() []any { return []any{64, map[string]any{}, vmOf(agent)} }},
		{nil, "attach_disk", func() []any { return []any{vmOf(agent), disk} }},
	} {
		began := time.Now()
		usage, err := d.Call(ctx, call.result, call.method, call.arguments()...)
		if err != nil {
			return err
		}
		t.note(call.method, ended{began, time.Now(), usage})
	}
	return nil
}

func (t *timesheet) note(method string, call ended) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.calls = append(t.calls, call)
	switch method {
	case "create_vm":
		t.create.Add(float64(call.Wall) / 1e6)
	case "attach_disk":
		t.attach.Add(float64(call.Wall) / 1e6)
	}
}

func (t *timesheet) sum(into *figures.Deploy) {
	into.Calls, into.Create, into.Attach = len(t.calls), t.create, t.attach
	for _, call := range t.calls {
		into.CPU += float64(call.CPU) / 1e9
		var atOnce float64 // when this one began
		for _, other := range t.calls {
			if !other.began.After(call.began) && other.end.After(call.began) {
				atOnce += float64(other.Peak) / 1024
			}
		}
		into.Peak = max(into.Peak, atOnce)
	}
}

// bareClient makes what a machine with a disk consists of, without a question and without a check.
type bareClient struct {
	client    kubernetes.Interface
	namespace string
	seed      seed
}

func (c bareClient) machine(ctx context.Context, n int) error {
	vm, disk := fmt.Sprintf("agent-api-%d", n), fmt.Sprintf("disk-api-%d", n)
	pod, err := c.pod(ctx, c.seed.machine, vm, disk)
	if err != nil {
		return err
	}
	secret, err := copied(c.seed, c.seed.secret, vm, disk)
	if err != nil {
		return err
	}
	own(secret, pod.UID)
	secret.Namespace = c.namespace
	if _, err := c.client.CoreV1().Secrets(c.namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return err
	}
	if pod, err = c.runs(ctx, pod); err != nil {
		return err
	}
	claim, err := copied(c.seed, c.seed.claim, vm, disk)
	if err != nil {
		return err
	}
	claim.Namespace, claim.Annotations, claim.Spec.VolumeName = c.namespace, nil, ""
	if _, err := c.client.CoreV1().PersistentVolumeClaims(c.namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return err
	}
	attachment, err := c.pod(ctx, c.seed.attachment, vm, disk, pod.Spec.NodeName)
	if err != nil {
		return err
	}
	_, err = c.runs(ctx, attachment)
	return err
}

// pod makes a copy that the scheduler places: on the node, if one is named.
func (c bareClient) pod(ctx context.Context, of *corev1.Pod, vm, disk string, node ...string) (*corev1.Pod, error) {
	pod, err := copied(c.seed, of, vm, disk)
	if err != nil {
		return nil, err
	}
	pod.Namespace, pod.OwnerReferences, pod.Status = c.namespace, nil, corev1.PodStatus{}
	pod.Spec.NodeName, pod.Spec.Affinity, pod.Spec.NodeSelector = "", nil, nil
	for _, name := range node {
		pod.Spec.NodeSelector = map[string]string{"test/name": name}
	}
	return c.client.CoreV1().Pods(c.namespace).Create(ctx, pod, metav1.CreateOptions{})
}

// runs waits until the Pod is ready, by a watch of it alone.
func (c bareClient) runs(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	stream, err := c.client.CoreV1().Pods(c.namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + pod.Name, ResourceVersion: pod.ResourceVersion})
	if err != nil {
		return nil, err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if now, ok := event.Object.(*corev1.Pod); ok && ready(now) {
			return now, nil
		}
	}
	return nil, fmt.Errorf("the watch of Pod %s has ended", pod.Name)
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
