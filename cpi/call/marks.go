package call

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// Marks are labels and annotations that every Pod of the CPI's carries for other programs of the cluster.
type Marks struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// DefaultMarks ask injectors of proxies to stay away. A machine is a whole operating system, whose connections a
// proxy would redirect before its agent has reached the message bus; and what helps a machine uses the node's network,
// and is to end when it is done.
func DefaultMarks() Marks {
	return Marks{
		// https://istio.io/latest/docs/setup/additional-setup/sidecar-injection/: the label; the annotation before 1.11.
		Labels: map[string]string{"sidecar.istio.io/inject": "false"},
		Annotations: map[string]string{
			"sidecar.istio.io/inject": "false",
			// https://linkerd.io/2/reference/proxy-configuration/
			"linkerd.io/inject": "disabled",
		},
	}
}

// Validate names the first that Kubernetes does not take, or that is the CPI's own.
func (m Marks) Validate() error {
	return CheckLabels("pods", m.Labels, m.Annotations)
}

// On returns the labels and annotations of a Pod with the marks added. A key that the Pod has, as a label or an
// annotation, is left to it in both places: injectors read one or the other.
func (m Marks) On(labels, annotations map[string]string) (map[string]string, map[string]string) {
	unset := func(marks map[string]string) map[string]string {
		left := map[string]string{}
		for key, value := range marks {
			_, label := labels[key]
			if _, annotation := annotations[key]; !label && !annotation {
				left[key] = value
			}
		}
		return left
	}
	markedLabels, markedAnnotations := unset(m.Labels), unset(m.Annotations)
	maps.Copy(markedLabels, labels)
	maps.Copy(markedAnnotations, annotations)
	return markedLabels, markedAnnotations
}

// BringHelper is Pods.Bring for a Pod that does something for a machine or a disk, which gets the marks.
func (c *Call) BringHelper(wanted *corev1.Pod, settle func(left *corev1.Pod) (keep bool, err error)) (*corev1.Pod, bool, error) {
	wanted.Labels, wanted.Annotations = c.Marks.On(wanted.Labels, wanted.Annotations)
	return c.Pods.Bring(c.Ctx, wanted, settle)
}
