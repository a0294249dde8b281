package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// IsActive reports whether the Pod is neither finished nor being deleted.
func IsActive(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil && !IsFinished(pod) }

// NodeOf returns the node of the first scheduled Pod, or "".
func NodeOf(pods []*corev1.Pod) string {
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			return pod.Spec.NodeName
		}
	}
	return ""
}

// IsOwnedBy reports whether the object has an owner reference with this UID.
func IsOwnedBy(object metav1.Object, uid types.UID) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == uid })
}

// IsReady reports whether the Pod has the condition Ready.
func IsReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// IsFinished reports whether the Pod has the phase Succeeded or Failed, for example after an eviction. It never runs again.
func IsFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// HasRun reports whether the container was ever started.
func HasRun(status corev1.ContainerStatus) bool {
	return status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil ||
		status.RestartCount > 0
}

func containerStatuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// EphemeralTermination returns the terminated state of the ephemeral container of this name, or nil if it did not terminate.
func EphemeralTermination(pod *corev1.Pod, name string) *corev1.ContainerStateTerminated {
	for _, status := range pod.Status.EphemeralContainerStatuses {
		if status.Name == name {
			return status.State.Terminated
		}
	}
	return nil
}

// IsAborted reports whether a container's program did not exit by itself: it failed to start, was killed, or its exit status is
// unknown. Shells and container runtimes use exit codes 126 to 128 for a program that fails to start, 128 plus the signal's number
// for a killed program, and 255 for an unknown status.
func IsAborted(state *corev1.ContainerStateTerminated) bool { return state.ExitCode >= 126 }

// FailedToStart reports whether a container's program failed to start; see Aborted.
func FailedToStart(state *corev1.ContainerStateTerminated) bool {
	return IsAborted(state) && state.ExitCode <= 128
}

// EphemeralNotStarted reports whether the runtime created, but did not start, the ephemeral container of this name.
func EphemeralNotStarted(pod *corev1.Pod, name string) bool {
	for _, status := range pod.Status.EphemeralContainerStatuses {
		if status.Name == name {
			return status.ContainerID != "" && status.State.Waiting != nil
		}
	}
	return false
}
