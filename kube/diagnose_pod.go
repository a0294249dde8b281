package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EventsAbout selects the events about exactly this object, by UID. It excludes the program's own events, which only repeat others.
func (c *Client) EventsAbout(object metav1.Object) Selection {
	fields := "involvedObject.uid=" + string(object.GetUID())
	if c.component != "" {
		fields += ",reportingComponent!=" + c.component
	}
	return Selection{Fields: fields}
}

// DiagnosePod returns one line that explains why the Pod is not running: the latest messages of the scheduler, the kubelet and the
// containers, the newest warning event of each reason, and the newest event of each PVC without a volume. It omits events that it cannot
// list, and those that repeat a status message.
func (c *Client) DiagnosePod(ctx context.Context, pod *corev1.Pod) string {
	messages := statusMessages(pod)
	events, err := c.Events.List(ctx, c.EventsAbout(pod))
	if err == nil {
		for _, event := range newestWarnings(events.Items) {
			isRepeated := func(message string) bool { return event.Message != "" && strings.Contains(message, event.Message) }
			if !slices.ContainsFunc(messages, isRepeated) {
				messages = append(messages, event.Reason+": "+event.Message)
			}
		}
	}
	messages = append(messages, c.provisioningMessages(ctx, pod)...)
	if len(messages) == 0 {
		return "no events or status messages"
	}
	return strings.Join(slices.Compact(messages), "; ")
}

// provisioningMessages returns the newest event of each PVC of the Pod that has no volume, for example that the driver of its StorageClass
// does not provision one.
func (c *Client) provisioningMessages(ctx context.Context, pod *corev1.Pod) []string {
	var messages []string
	for _, volume := range pod.Spec.Volumes {
		var name string
		switch {
		case volume.PersistentVolumeClaim != nil:
			name = volume.PersistentVolumeClaim.ClaimName
		case volume.Ephemeral != nil:
			name = pod.Name + "-" + volume.Name
		default:
			continue
		}
		pvc, err := c.PVCs.Get(ctx, name)
		if err != nil || HasVolume(pvc) {
			continue
		}
		events, err := c.Events.List(ctx, c.EventsAbout(pvc))
		if err != nil || len(events.Items) == 0 {
			continue
		}
		newest := slices.MaxFunc(events.Items, func(a, b *corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
		messages = append(messages, fmt.Sprintf("PVC %s has no volume: %s: %s", pvc.Name, newest.Reason, newest.Message))
	}
	return messages
}

func statusMessages(pod *corev1.Pod) []string {
	var messages []string
	if pod.Status.Reason != "" || pod.Status.Message != "" {
		messages = append(messages, strings.TrimSpace(pod.Status.Reason+": "+pod.Status.Message))
	}
	if reason := UnschedulableReason(pod); reason != "" {
		messages = append(messages, "not scheduled: "+reason)
	}
	for _, status := range containerStatuses(pod) {
		if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing" {
			messages = append(messages, strings.TrimSuffix(fmt.Sprintf("container %s: %s: %s", status.Name, waiting.Reason, waiting.Message), ": "))
		}
		for _, ended := range []*corev1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
			if ended != nil && ended.ExitCode != 0 {
				messages = append(messages, fmt.Sprintf("container %s exited with status %d (%s): %s",
					status.Name, ended.ExitCode, ended.Reason, strings.TrimSpace(ended.Message)))
			}
		}
	}
	return messages
}

// newestWarnings returns the newest warning for each reason, oldest first.
func newestWarnings(events []*corev1.Event) []*corev1.Event {
	newest := map[string]*corev1.Event{}
	for _, event := range events {
		if event.Type != corev1.EventTypeWarning {
			continue
		}
		if known := newest[event.Reason]; known == nil || known.LastTimestamp.Before(&event.LastTimestamp) {
			newest[event.Reason] = event
		}
	}
	return slices.SortedFunc(maps.Values(newest), func(a, b *corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
}
