package manifest

import (
	_ "embed"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed reboot.sh
var rebootScript string

// RoleReboot is the value of LabelRole on the Pod that restarts a machine.
const RoleReboot = "reboot"

// RebootName is the name of the Pod that restarts this machine.
func RebootName(vm string) string { return vm + "-reboot" }

// containerID is the runtime's own id of the machine's container, without the runtime's name.
func containerID(vm *corev1.Pod) string {
	for _, status := range vm.Status.ContainerStatuses {
		if _, id, found := strings.Cut(status.ContainerID, "://"); found {
			return id
		}
	}
	return ""
}

// Reboot is a Pod on the machine's node that ends the machine's init program, as its own reset button:
// the kubelet then starts the container again in the same Pod, with the same address and volumes. It
// runs once, belongs to the machine, and leaves a container alone that is not the one of the request.
func Reboot(vm *corev1.Pod, director string) *corev1.Pod {
	meta := owned(RebootName(vm.Name), vm.Namespace, director, RoleReboot)
	meta.OwnerReferences = []metav1.OwnerReference{ownedBy(vm)}
	return &corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name:            "reboot",
				Image:           vm.Spec.Containers[0].Image,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Command:         []string{"/bin/bash", "-c", rebootScript},
				Env: []corev1.EnvVar{
					{Name: "VM", Value: path.Join(vm.Namespace, vm.Name)},
					{Name: "CONTAINER", Value: containerID(vm)},
				},
				SecurityContext:          &corev1.SecurityContext{Privileged: new(true)},
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			}},
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64(1)),
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			HostNetwork:                   true,
			HostPID:                       true, // PID 1 of a container can only be killed from outside
			Affinity:                      onNode(vm.Spec.NodeName),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			ImagePullSecrets:              vm.Spec.ImagePullSecrets,
		},
	}
}
