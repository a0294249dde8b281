package manifest

import corev1 "k8s.io/api/core/v1"

// Names of the CPI's own containers: each of its Pods has one. The cluster may inject others beside it, in whatever
// place; they are found by these names alone.
const (
	vmContainer         = "machine"
	attachmentContainer = "hold"
	copyContainer       = "copy"
)

// OwnContainerName is the name of the CPI's container in the Pod. That of an errand is called after its role.
func OwnContainerName(pod *corev1.Pod) string {
	switch role := pod.Labels[LabelRole]; role {
	case RoleVM:
		return vmContainer
	case RoleAttachment:
		return attachmentContainer
	case RoleCopy:
		return copyContainer
	default:
		return role
	}
}

// OwnContainer is the CPI's container in the Pod. A Pod of the CPI's that has none was changed by someone else; the empty
// container stands for what is missing.
func OwnContainer(pod *corev1.Pod) *corev1.Container {
	return containerByName(pod.Spec, OwnContainerName(pod))
}

func containerByName(spec corev1.PodSpec, name string) *corev1.Container {
	for i := range spec.Containers {
		if spec.Containers[i].Name == name {
			return &spec.Containers[i]
		}
	}
	return &corev1.Container{}
}

// OwnContainerStatus is what the kubelet reports of the CPI's container in the Pod; empty while it reports nothing.
func OwnContainerStatus(pod *corev1.Pod) corev1.ContainerStatus {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == OwnContainerName(pod) {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

// HasBooted reports whether the machine has booted. It goes by the CPI's own container alone: whether the Pod is ready is for the
// jobs in it (readiness_probe), for containers that were injected, and for load balancers (readiness gates) to say as well.
func HasBooted(pod *corev1.Pod) bool {
	status := OwnContainerStatus(pod)
	return status.State.Running != nil && status.Started != nil && *status.Started
}

// Outcome reports whether the CPI's container in a Pod that runs once is over, and whether it ended well. A container
// that was injected may keep the Pod itself from ending.
func Outcome(pod *corev1.Pod) (finished, succeeded bool) {
	if ended := OwnContainerStatus(pod).State.Terminated; ended != nil {
		return true, ended.ExitCode == 0
	}
	succeeded = pod.Status.Phase == corev1.PodSucceeded
	return succeeded || pod.Status.Phase == corev1.PodFailed, succeeded
}
