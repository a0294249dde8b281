package manifest

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newHelperPod is a Pod that does something for a machine, or for a disk, where that is: as the node sees it, and
// with what is in a machine's image. It runs once.
func newHelperPod(vmPod *corev1.Pod, meta metav1.ObjectMeta, container corev1.Container) *corev1.Pod {
	container.Image = OwnContainer(vmPod).Image
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
			HostNetwork:                   true, // no address of its own
			HostPID:                       true, // to see, or end, what uses a device
			// Wherever the machine is, this may follow: cordoned, full or failing nodes included.
			Tolerations:       []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			PriorityClassName: vmPod.Spec.PriorityClassName,
			ImagePullSecrets:  vmPod.Spec.ImagePullSecrets,
		},
	}
}

// nodeAffinityTo asks the scheduler for this node. A Pod with nodeName instead would bypass it, and a claim
// that waits for its first consumer would stay Pending for ever.
func nodeAffinityTo(name string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{
					Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name},
				}},
			}},
		},
	}}
}

// RequiredNode is the node that onNode binds the Pod to; "" when it may run on several. What else the cluster has added
// to the Pod's affinity does not matter.
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

// podAffinityTo asks the scheduler for the node of a machine that has none yet.
func podAffinityTo(pod *corev1.Pod) *corev1.Affinity {
	return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{LabelVM: pod.Name, LabelRole: RoleVM}},
			TopologyKey:   corev1.LabelHostname,
		}},
	}}
}
