package manifest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/node/api"
)

// nodeImageVolume is the name of the volume with the image of bosh-node, the program that runs on nodes.
const nodeImageVolume = "bosh-node"

// mountNodeImage mounts the image of bosh-node in the first container of the Pod, which has the image of a stemcell. The kubelet mounts it
// read-only.
func mountNodeImage(pod *corev1.Pod, image string) {
	addVolume(pod, corev1.VolumeMount{Name: nodeImageVolume, MountPath: api.VolumeDir, ReadOnly: true}, corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: image, PullPolicy: corev1.PullIfNotPresent},
	})
}

// NodeImage returns the image of bosh-node that the Pod mounts or runs, or "".
func NodeImage(pod *corev1.Pod) string {
	if own := OwnContainer(pod); len(own.Command) > 0 && own.Command[0] == api.InImage {
		return own.Image
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Name == nodeImageVolume && volume.Image != nil {
			return volume.Image.Reference
		}
	}
	return ""
}

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

// inVolume returns the command of a container that mounts the image of bosh-node.
func inVolume(arguments ...string) []string { return append([]string{api.InVolume}, arguments...) }

// inImage returns the command of a container of the image of bosh-node.
func inImage(arguments ...string) []string { return append([]string{api.InImage}, arguments...) }
