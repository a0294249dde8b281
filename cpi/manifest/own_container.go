package manifest

import corev1 "k8s.io/api/core/v1"

// Names of the CPI's containers. Each of its Pods has one. The cluster may inject other containers at any position, so the CPI finds
// its own container by name.
const (
	VMContainer         = "vm"
	attachmentContainer = "attach"
)

// OwnContainerName returns the name of the CPI's container in the Pod. In helper Pods, it is the role of the Pod.
func OwnContainerName(pod *corev1.Pod) string {
	switch role := pod.Labels[LabelRole]; role {
	case RoleVM:
		return VMContainer
	case RoleAttachment:
		return attachmentContainer
	default:
		return role
	}
}

// OwnContainer returns the CPI's container in the Pod. If another client removed or renamed it, the result is an empty container.
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

// OwnContainerStatus returns the status of the CPI's container in the Pod. It is empty until the kubelet reports one.
func OwnContainerStatus(pod *corev1.Pod) corev1.ContainerStatus {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == OwnContainerName(pod) {
			return status
		}
	}
	return corev1.ContainerStatus{}
}
