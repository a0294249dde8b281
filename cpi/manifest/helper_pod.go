package manifest

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newHelperPod returns a privileged Pod that runs once, in the node's network and PID namespaces. It does not have the VM's priority, with
// which it would preempt other VMs on a full node.
func newHelperPod(vmPod *corev1.Pod, image string, meta metav1.ObjectMeta, container corev1.Container) *corev1.Pod {
	container.Image = image
	container.ImagePullPolicy = corev1.PullIfNotPresent
	container.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	container.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	return &corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{container},
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64(1)),
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			HostNetwork:                   true, // the Pod needs no address
			HostPID:                       true, // to find processes that use a device, and to end a VM's processes
			// It may run wherever the VM runs, even on a cordoned or failing node.
			Tolerations:      []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			ImagePullSecrets: vmPod.Spec.ImagePullSecrets,
		},
	}
}

// newOwnedHelperPod returns a helper Pod that runs bosh-node once on the target Pod's node, from its own image. The target Pod owns it.
func newOwnedHelperPod(name, role, director, nodeImage string, target *corev1.Pod, arguments []string) HelperPod {
	meta := newObjectMeta(name, target.Namespace, director, role)
	meta.OwnerReferences = []metav1.OwnerReference{ownerReference(target)}
	pod := newHelperPod(target, nodeImage, meta, corev1.Container{
		Name: role, Command: inImage(arguments...), Resources: corev1.ResourceRequirements{Requests: HelperRequests()},
	})
	pod.Spec.Affinity = nodeAffinityTo(target.Spec.NodeName)
	return HelperPod{pod}
}

// HelperRequests returns the resource requests of helper and attachment containers. An attachment uses 4 MiB of memory, and 6 MiB
// more during an exclusivity check: because it stays below its request, it is among the last Pods to be evicted. A small request
// also makes the kernel's OOM killer prefer the container; node/attach prevents that.
func HelperRequests() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: mebibytes(32)}
}

// nodeAffinityTo requires the node of this name. A Pod with spec.nodeName would bypass the scheduler, and a PVC that waits for its
// first consumer would stay Pending forever.
func nodeAffinityTo(name string) *corev1.Affinity {
	return addRequiredTerms(nil, nodeNameTerms(corev1.NodeSelectorOpIn, name))
}

// RequiredNode returns the node that nodeAffinityTo requires, or "". It ignores additions of the cluster to the Pod's affinity.
func RequiredNode(pod *corev1.Pod) string {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// podAffinityTo requires the node of a VM Pod that is not scheduled yet.
func podAffinityTo(pod *corev1.Pod) *corev1.Affinity {
	return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{LabelVM: pod.Name, LabelRole: RoleVM}},
			TopologyKey:   corev1.LabelHostname,
		}},
	}}
}
