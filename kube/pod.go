package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// IsActive reports whether the Pod has neither ended nor is to end.
func IsActive(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil && !Finished(pod) }

// ActivePods returns those of the Pods that run.
func ActivePods(pods []*corev1.Pod) (matching []*corev1.Pod) {
	for _, pod := range pods {
		if IsActive(pod) {
			matching = append(matching, pod)
		}
	}
	return matching
}

// PodsWithLabel returns those of the Pods whose label has this value.
func PodsWithLabel(pods []*corev1.Pod, label, value string) (matching []*corev1.Pod) {
	for _, pod := range pods {
		if pod.Labels[label] == value {
			matching = append(matching, pod)
		}
	}
	return matching
}

// NodeOf returns the node of the first of the Pods that has one, or "".
func NodeOf(pods []*corev1.Pod) string {
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			return pod.Spec.NodeName
		}
	}
	return ""
}

// OwnedBy reports whether the object of this UID is among the object's owners.
func OwnedBy(object metav1.Object, uid types.UID) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == uid })
}

// Ready reports whether the Pod's containers are up.
func Ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Finished reports whether the Pod has ended for good, for example by eviction.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// HasRun reports whether the container has ever run.
func HasRun(s corev1.ContainerStatus) bool {
	return s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil || s.RestartCount > 0
}

func containerStatuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// UnschedulableReason returns the scheduler's reason for not placing the Pod, or "". A Pod with a scheduling gate was not
// looked at.
func UnschedulableReason(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason != corev1.PodReasonSchedulingGated {
			return c.Message
		}
	}
	return ""
}

// EphemeralTermination returns how the ephemeral container of this name ended, or nil while it has not.
func EphemeralTermination(pod *corev1.Pod, name string) *corev1.ContainerStateTerminated {
	for _, status := range pod.Status.EphemeralContainerStatuses {
		if status.Name == name {
			return status.State.Terminated
		}
	}
	return nil
}

// Aborted reports that a container's program did not end by itself: it could not be started, was killed, or ended unseen. The
// codes are those of shells and container runtimes: 126 to 128 for what cannot be started, a signal's number and 128, and 255
// for what a runtime has lost sight of.
func Aborted(ended *corev1.ContainerStateTerminated) bool { return ended.ExitCode >= 126 }

// FailedToStart reports that a container's program could not be started, see Cut.
func FailedToStart(ended *corev1.ContainerStateTerminated) bool {
	return Aborted(ended) && ended.ExitCode <= 128
}

// EphemeralImagePullFailed reports that the image of the ephemeral container of this name cannot be had now.
func EphemeralImagePullFailed(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool {
		waiting := s.State.Waiting
		return s.Name == name && waiting != nil && (waiting.Reason == reasonErrImagePull || waiting.Reason == reasonImagePullBackOff)
	})
}

// EphemeralNotStarted reports that the ephemeral container of this name was made and does not run.
func EphemeralNotStarted(pod *corev1.Pod, name string) bool {
	for _, status := range pod.Status.EphemeralContainerStatuses {
		if status.Name == name {
			return status.ContainerID != "" && status.State.Waiting != nil
		}
	}
	return false
}
