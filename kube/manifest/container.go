package manifest

import corev1 "k8s.io/api/core/v1"

// Names of the CPI's own containers: each of its Pods has one. The cluster may inject others beside it, in whatever
// place; they are found by these names alone.
const (
	machineContainer = "machine"
	holdContainer    = "hold"
	copyContainer    = "copy"
)

// OwnName is the name of the CPI's container in the Pod. That of an errand is called after its role.
func OwnName(pod *corev1.Pod) string {
	switch role := pod.Labels[LabelRole]; role {
	case RoleVM:
		return machineContainer
	case RoleAttachment:
		return holdContainer
	case RoleCopy:
		return copyContainer
	default:
		return role
	}
}

// Own is the CPI's container in the Pod. A Pod of the CPI's that has none was changed by someone else; the empty
// container stands for what is missing.
func Own(pod *corev1.Pod) *corev1.Container { return named(pod.Spec, OwnName(pod)) }

func named(spec corev1.PodSpec, name string) *corev1.Container {
	for i := range spec.Containers {
		if spec.Containers[i].Name == name {
			return &spec.Containers[i]
		}
	}
	return &corev1.Container{}
}

// OwnStatus is what the kubelet reports of the CPI's container in the Pod; empty while it reports nothing.
func OwnStatus(pod *corev1.Pod) corev1.ContainerStatus {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == OwnName(pod) {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

// Up reports whether the machine has booted. It goes by the CPI's own container alone: whether the Pod is ready is for the
// jobs in it (readiness_probe), for containers that were injected, and for load balancers (readiness gates) to say as well.
func Up(machine *corev1.Pod) bool {
	status := OwnStatus(machine)
	return status.State.Running != nil && status.Started != nil && *status.Started
}

// Outcome reports whether the CPI's container in a Pod that runs once is over, and whether it ended well. A container
// that was injected may keep the Pod itself from ending.
func Outcome(pod *corev1.Pod) (over, well bool) {
	if ended := OwnStatus(pod).State.Terminated; ended != nil {
		return true, ended.ExitCode == 0
	}
	well = pod.Status.Phase == corev1.PodSucceeded
	return well || pod.Status.Phase == corev1.PodFailed, well
}
