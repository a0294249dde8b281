package manifest

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/node/api"
)

// probePort is the port on which a probe connects to itself, through its Service.
const probePort = 6868

// NodeProbePod returns a Pod for the deep check. It is like the VM Pod but runs once, on this node, and reports in its termination
// message what a VM would find there. The Service of the same name, see NodeProbeService, routes to it.
func NodeProbePod(vm VM, nodeName string) HelperPod {
	vm.Services = []Service{NodeProbeService(vm.Name)}
	vm.Affinity, vm.Tolerations = nodeAffinityTo(nodeName), []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod := vm.Pod().Pod
	container := &pod.Spec.Containers[0]
	container.Command = inVolume(api.NodeProbe{Service: fmt.Sprintf("%s:%d", vm.Name, probePort)}.Command()...)
	container.StartupProbe, container.ReadinessProbe, container.Lifecycle = nil, nil, nil
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
	removeSettingsVolume(pod)
	return HelperPod{pod}
}

// NodeProbeService returns the Service of the probe of this name.
func NodeProbeService(name string) Service {
	return Service{
		Name: name, Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Name: "probe", Port: probePort}},
		PublishNotReadyAddresses: true,
	}
}

// removeSettingsVolume removes the volume with the agent settings from a Pod without an agent.
func removeSettingsVolume(pod *corev1.Pod) {
	settings := func(mount corev1.VolumeMount) bool { return mount.MountPath == vmSettingsPath }
	container := &pod.Spec.Containers[0]
	container.VolumeMounts = slices.DeleteFunc(container.VolumeMounts, settings)
	pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool { return volume.Secret != nil })
}
