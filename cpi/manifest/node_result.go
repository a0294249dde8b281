package manifest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/node/api"
)

// NodeResult returns the result of bosh-node in a container that failed. If it has none, for example because the program did not start, the
// message is that of the runtime.
func NodeResult(terminated *corev1.ContainerStateTerminated) api.Result {
	result, ok := api.ParseResult(terminated.Message)
	if !ok {
		return api.Result{Message: strings.TrimSpace(terminated.Message)}
	}
	return result
}

// WithReadableResults returns a copy of the Pod. In its status, results of bosh-node are messages for people.
func WithReadableResults(pod *corev1.Pod) *corev1.Pod {
	readable := pod.DeepCopy()
	for _, status := range readable.Status.ContainerStatuses {
		for _, terminated := range []*corev1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
			if terminated != nil {
				terminated.Message = TerminationMessage(terminated)
			}
		}
	}
	return readable
}

// TerminationMessage returns the message of a container that failed, with its code if it is a result of bosh-node.
func TerminationMessage(terminated *corev1.ContainerStateTerminated) string {
	return NodeResult(terminated).String()
}
