package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/bench/report"
)

// observer records when each event is observed for the first time, and the versions of the Pod.
type observer struct {
	start time.Time

	mutex   sync.Mutex
	moments []report.Moment
	writes  report.Writes
}

func (o *observer) record(event string, at time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if !slices.ContainsFunc(o.moments, func(m report.Moment) bool { return m.What == event }) {
		o.moments = append(o.moments, report.Moment{What: event, At: float64(at.Sub(o.start).Milliseconds())})
	}
}

// observe runs create, which must create the VM, and returns the events of the VM Pod and its versions until it is ready.
func (r *realNode) observe(ctx context.Context, vm string, create func() error) ([]report.Moment, report.Writes, error) {
	watchCtx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	stream, err := r.client.CoreV1().Pods(r.namespace).Watch(watchCtx, metav1.ListOptions{FieldSelector: "metadata.name=" + vm})
	if err != nil {
		return nil, report.Writes{}, err
	}
	defer stream.Stop()
	o := &observer{start: time.Now()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range stream.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			o.recordPod(pod, time.Now())
			if isReady(pod) {
				return
			}
		}
	}()
	if err := create(); err != nil {
		return nil, report.Writes{}, err
	}
	o.record("create_vm returns", time.Now())
	<-done
	if watchCtx.Err() != nil {
		return nil, report.Writes{}, fmt.Errorf("wait until Pod %s is ready: %w", vm, watchCtx.Err())
	}
	if at, ok := r.firstLogTime(ctx, vm); ok {
		o.record("first line of the agent's log", at)
	}
	slices.SortStableFunc(o.moments, func(a, b report.Moment) int { return int(a.At - b.At) })
	return o.moments, o.writes, nil
}

// conditionEvents are the names of the events at which conditions of a Pod become true.
var conditionEvents = map[corev1.PodConditionType]string{
	corev1.PodScheduled:              "Pod is scheduled",
	corev1.PodReadyToStartContainers: "sandbox, network and volumes are ready",
	corev1.PodReady:                  "kubelet detects the agent",
}

// recordPod records a version of the Pod. etcd stores it in the same format, protobuf.
func (o *observer) recordPod(pod *corev1.Pod, now time.Time) {
	o.writes.Count++
	o.writes.Bytes += pod.Size()
	o.record("Pod is created", now)
	for _, condition := range pod.Status.Conditions {
		if name, known := conditionEvents[condition.Type]; known && condition.Status == corev1.ConditionTrue {
			o.record(name, now)
		}
	}
	for _, container := range pod.Status.ContainerStatuses {
		if container.State.Running != nil {
			o.record("kubelet reports the container's start", now)
		}
	}
}

var timestampPattern = regexp.MustCompile(`(\d{4}-\d\d-\d\d)[T_ ](\d\d:\d\d:\d\d\.\d+)`)

// firstLogTime returns the time of the first line of the agent's log.
func (r *realNode) firstLogTime(ctx context.Context, vm string) (time.Time, bool) {
	line, err := r.plane.Kubectl(ctx, "exec", "--namespace", r.namespace, vm, "--", "head", "-n", "1", "/var/vcap/bosh/log/current")
	if err != nil {
		return time.Time{}, false
	}
	match := timestampPattern.FindStringSubmatch(line)
	if match == nil {
		return time.Time{}, false
	}
	at, err := time.Parse("2006-01-02 15:04:05.999999999", match[1]+" "+match[2])
	return at, err == nil
}
