package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// IsActive reports whether the Pod has not finished and is not being deleted.
func IsActive(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil && !Finished(pod) }

// ActivePods returns the Pods that are active, see IsActive.
func ActivePods(pods []*corev1.Pod) (matching []*corev1.Pod) {
	for _, pod := range pods {
		if IsActive(pod) {
			matching = append(matching, pod)
		}
	}
	return matching
}

// PodsWithLabel returns the Pods with this value of the label.
func PodsWithLabel(pods []*corev1.Pod, label, value string) (matching []*corev1.Pod) {
	for _, pod := range pods {
		if pod.Labels[label] == value {
			matching = append(matching, pod)
		}
	}
	return matching
}

// NodeOf returns the node of the first Pod that has one, or "".
func NodeOf(pods []*corev1.Pod) string {
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			return pod.Spec.NodeName
		}
	}
	return ""
}

// OwnedBy reports whether an owner reference of the object has this UID.
func OwnedBy(object metav1.Object, uid types.UID) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == uid })
}

// Ready reports whether the Pod has the condition Ready.
func Ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Finished reports whether the Pod has the phase Succeeded or Failed, for example after an eviction. It never runs again.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// HasRun reports whether the container has ever started.
func HasRun(s corev1.ContainerStatus) bool {
	return s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil || s.RestartCount > 0
}

func containerStatuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// UnschedulableReason returns why the scheduler has found no node for the Pod, or "". A scheduling gate is not such a reason.
func UnschedulableReason(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason != corev1.PodReasonSchedulingGated {
			return c.Message
		}
	}
	return ""
}

// EphemeralTermination returns how the ephemeral container of this name has terminated, or nil if it has not.
func EphemeralTermination(pod *corev1.Pod, name string) *corev1.ContainerStateTerminated {
	for _, status := range pod.Status.EphemeralContainerStatuses {
		if status.Name == name {
			return status.State.Terminated
		}
	}
	return nil
}

// Aborted reports whether a container's program did not exit by itself: it could not be started, was killed, or the runtime
// does not know its exit status. The exit codes are those of shells and container runtimes: 126 to 128 for a program that
// cannot be started, 128 plus its number for a signal, and 255 for an unknown status.
func Aborted(ended *corev1.ContainerStateTerminated) bool { return ended.ExitCode >= 126 }

// FailedToStart reports whether a container's program could not be started, see Aborted.
func FailedToStart(ended *corev1.ContainerStateTerminated) bool {
	return Aborted(ended) && ended.ExitCode <= 128
}

// EphemeralImagePullFailed reports whether the image of the ephemeral container of this name cannot be pulled at present.
func EphemeralImagePullFailed(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool {
		waiting := s.State.Waiting
		return s.Name == name && waiting != nil && (waiting.Reason == reasonErrImagePull || waiting.Reason == reasonImagePullBackOff)
	})
}

// EphemeralNotStarted reports whether the ephemeral container of this name was created by the runtime, and was not started.
func EphemeralNotStarted(pod *corev1.Pod, name string) bool {
	for _, status := range pod.Status.EphemeralContainerStatuses {
		if status.Name == name {
			return status.ContainerID != "" && status.State.Waiting != nil
		}
	}
	return false
}
