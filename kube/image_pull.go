package kube

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of a waiting container if the kubelet cannot pull its image, from Kubernetes' pkg/kubelet/images/types.go.
const (
	reasonErrImagePull     = "ErrImagePull"
	reasonImagePullBackOff = "ImagePullBackOff"
)

// isPermanentPullError reports whether the message of a failed pull describes a permanent error, and not an outage.
func isPermanentPullError(message string) bool {
	message = strings.ToLower(message)
	return slices.ContainsFunc([]string{
		"not found", "manifest unknown", "unauthorized", "denied", "authorization failed", "forbidden",
	}, func(phrase string) bool { return strings.Contains(message, phrase) })
}

// ImagePullError returns the message of the last failure to pull an image of the container, its own or that of a volume, or "".
func ImagePullError(pod *corev1.Pod, container string) string {
	for _, status := range containerStatuses(pod) {
		if status.Name == container && isPullFailure(status.State.Waiting) {
			return status.State.Waiting.Message
		}
	}
	return ""
}

// isPullFailure reports whether a container waits because the last pull of an image failed.
func isPullFailure(waiting *corev1.ContainerStateWaiting) bool {
	return waiting != nil && (waiting.Reason == reasonErrImagePull || waiting.Reason == reasonImagePullBackOff)
}

// WrongPlatform reports whether the Pod's image is for other operating systems or architectures than its node. It recognizes the
// messages of containerd and CRI-O.
func WrongPlatform(pod *corev1.Pod) bool {
	return slices.ContainsFunc(containerStatuses(pod), func(status corev1.ContainerStatus) bool {
		waiting := status.State.Waiting
		return isPullFailure(waiting) &&
			(strings.Contains(waiting.Message, "no match for platform") || strings.Contains(waiting.Message, "no image found in"))
	})
}

// EphemeralImagePullFailed reports whether the last attempt to pull the image of the ephemeral container of this name failed.
func EphemeralImagePullFailed(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == name && isPullFailure(s.State.Waiting)
	})
}
