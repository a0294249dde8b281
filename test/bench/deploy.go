package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/bench/report"
)

// deploy measures the time to create many VMs with a disk each, with the CPI and with a minimal client in turn.
func (b bench) deploy(ctx context.Context, env *benchenv.Env, results *report.Results) error {
	results.Deploys = nil
	for _, size := range b.deploys {
		result, err := b.measureDeploy(ctx, env, size)
		if err != nil {
			return err
		}
		results.Deploys = append(results.Deploys, result)
	}
	return nil
}

// measureDeploy returns the round with the median time of the CPI, and the minimal client's median time.
func (b bench) measureDeploy(ctx context.Context, env *benchenv.Env, size deploySize) (report.Deploy, error) {
	namespace := fmt.Sprintf("deploy-%d", size.vms)
	for _, name := range []string{namespace, namespace + "-bare"} {
		if err := benchenv.CreateNamespace(ctx, env.Client, name); err != nil {
			return report.Deploy{}, err
		}
	}
	d, err := benchenv.NewDirector(env.Programs, env.Dir, namespace, env.Plane.Kubeconfig("admin"), namespace, "")
	if err != nil {
		return report.Deploy{}, err
	}
	template, err := createTemplate(ctx, env.Client, d, namespace, templateAgentID, plainVM())
	if err != nil {
		return report.Deploy{}, err
	}
	client := minimalClient{env.Client, namespace + "-bare", template}
	var rounds []report.Deploy
	var bare report.Distribution
	for round := range size.rounds {
		b.logf("deploy: %d VMs by %d parallel processes, round %d of %d", size.vms, size.processes, round+1, size.rounds)
		result, log := report.Deploy{VMs: size.vms, Workers: size.processes}, callLog{}
		if result.Seconds, err = runConcurrently(ctx, size.vms, size.processes, func(ctx context.Context, n int) error { return log.createVM(ctx, d, round, n) }); err != nil {
			return report.Deploy{}, err
		}
		log.summarize(&result)
		rounds = append(rounds, result)
		seconds, err := runConcurrently(ctx, size.vms, size.processes, func(ctx context.Context, n int) error { return client.createVM(ctx, round, n) })
		if err != nil {
			return report.Deploy{}, err
		}
		bare.Add(seconds)
	}
	slices.SortFunc(rounds, func(a, b report.Deploy) int { return cmp.Compare(a.Seconds, b.Seconds) })
	median := rounds[len(rounds)/2]
	median.Bare = bare.Median()
	return median, nil
}

// controllerPause is the time in which the controller manager regains all requests that its rate limit allows at once (30, by 20 a second).
const controllerPause = 1500 * time.Millisecond

// runConcurrently calls do with each number below count, in this number of workers. It returns the total time in seconds. It first waits
// until the controllers have recovered from earlier calls.
func runConcurrently(ctx context.Context, count, workers int, do func(context.Context, int) error) (float64, error) {
	select {
	case <-time.After(controllerPause):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	start := time.Now()
	for n := range count {
		group.Go(func() error { return do(ctx, n) })
	}
	err := group.Wait()
	return time.Since(start).Seconds(), err
}

// callLog records the calls of a deploy.
type callLog struct {
	mutex          sync.Mutex
	calls          []finishedCall
	create, attach report.Distribution
}

// finishedCall is the time and usage of a finished call.
type finishedCall struct {
	start, end time.Time
	report.Usage
}

func (l *callLog) createVM(ctx context.Context, d benchenv.Director, round, n int) error {
	agentID, diskCID := fmt.Sprintf("api-%d-%d", round, n), ""
	for _, call := range []struct {
		result    any
		method    string
		arguments func() []any
	}{
		{nil, "create_vm", func() []any {
			return []any{agentID, stemcell, plainVM().properties, dynamicNetwork(), []string{}, plainVM().env}
		}},
		{&diskCID, "create_disk", func() []any { return []any{64, map[string]any{}, vmCID(agentID)} }},
		{nil, "attach_disk", func() []any { return []any{vmCID(agentID), diskCID} }},
	} {
		start := time.Now()
		usage, err := d.Call(ctx, call.result, call.method, call.arguments()...)
		if err != nil {
			return err
		}
		l.record(call.method, finishedCall{start, time.Now(), usage})
	}
	return nil
}

func (l *callLog) record(method string, call finishedCall) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.calls = append(l.calls, call)
	switch method {
	case "create_vm":
		l.create.Add(float64(call.Wall) / 1e6)
	case "attach_disk":
		l.attach.Add(float64(call.Wall) / 1e6)
	}
}

// summarize sets the fields of result that are derived from the calls.
func (l *callLog) summarize(result *report.Deploy) {
	result.Calls, result.Create, result.Attach = len(l.calls), l.create, l.attach
	for _, call := range l.calls {
		result.CPU += float64(call.CPU) / 1e9
		var concurrentMiB float64 // at the start of this call
		for _, other := range l.calls {
			if !other.start.After(call.start) && other.end.After(call.start) {
				concurrentMiB += float64(other.Peak) / 1024
			}
		}
		result.Peak = max(result.Peak, concurrentMiB)
	}
}

// minimalClient creates the same objects as the CPI for a VM with a disk, and waits for them. It makes no checks.
type minimalClient struct {
	client    kubernetes.Interface
	namespace string
	template  vmTemplate
}

func (c minimalClient) createVM(ctx context.Context, round, n int) error {
	vm, disk := fmt.Sprintf("agent-api-%d-%d", round, n), fmt.Sprintf("disk-api-%d-%d", round, n)
	pod, err := c.startVM(ctx, vm, disk)
	if err != nil {
		return err
	}
	pvc, err := copyObject(c.template, c.template.pvc, vm, disk)
	if err != nil {
		return err
	}
	pvc.Namespace, pvc.Annotations, pvc.Spec.VolumeName = c.namespace, nil, ""
	if _, err := c.client.CoreV1().PersistentVolumeClaims(c.namespace).Create(ctx, pvc, metav1.CreateOptions{}); err != nil {
		return err
	}
	attachment, err := c.createPod(ctx, c.template.attachmentPod, vm, disk, pod.Spec.NodeName)
	if err != nil {
		return err
	}
	_, err = c.waitReady(ctx, attachment)
	return err
}

// startVM creates a VM Pod and its Secret, and waits until the Pod is ready.
func (c minimalClient) startVM(ctx context.Context, vm, disk string) (*corev1.Pod, error) {
	pod, err := c.createPod(ctx, c.template.vmPod, vm, disk)
	if err != nil {
		return nil, err
	}
	secret, err := copyObject(c.template, c.template.secret, vm, disk)
	if err != nil {
		return nil, err
	}
	setOwnerUID(secret, pod.UID)
	secret.Namespace = c.namespace
	if _, err := c.client.CoreV1().Secrets(c.namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	return c.waitReady(ctx, pod)
}

// createPod creates a copy of the Pod. The scheduler assigns it to a node, optionally to this one.
func (c minimalClient) createPod(ctx context.Context, source *corev1.Pod, vm, disk string, node ...string) (*corev1.Pod, error) {
	pod, err := copyObject(c.template, source, vm, disk)
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

// waitReady waits until the Pod is ready, with a watch of this Pod only.
func (c minimalClient) waitReady(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	stream, err := c.client.CoreV1().Pods(c.namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + pod.Name, ResourceVersion: pod.ResourceVersion})
	if err != nil {
		return nil, err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if current, ok := event.Object.(*corev1.Pod); ok && isReady(current) {
			return current, nil
		}
	}
	return nil, fmt.Errorf("watch of Pod %s closed", pod.Name)
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
