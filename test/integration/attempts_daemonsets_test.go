package integration

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// asPrefetched is what has nodes pull an image, as the CPI makes it.
func (a attacker) asPrefetched(ctx context.Context) *appsv1.DaemonSet {
	GinkgoHelper()
	by := a.prefetching(ctx, enabled, nil)
	_, err := by.Call(ctx, "create_stemcell", "image", light)
	Expect(err).NotTo(HaveOccurred())
	made := a.pulling(ctx)[0]
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "prefetch-two", Labels: made.Labels}, Spec: made.Spec}
}

// onDaemonSet is an attempt to make one with a change of its Pods.
func onDaemonSet(what, rule string, change func(*corev1.PodTemplateSpec)) attempt {
	return attempt{"a DaemonSet " + what, rule, func(ctx context.Context, a attacker) error {
		set := a.asPrefetched(ctx)
		change(&set.Spec.Template)
		_, err := a.client.AppsV1().DaemonSets(a.namespace).Create(ctx, set, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}}
}

func attemptsWithDaemonSets() []attempt {
	own := func(change func(*corev1.Container)) func(*corev1.PodTemplateSpec) {
		return func(pod *corev1.PodTemplateSpec) { change(&pod.Spec.Containers[0]) }
	}
	return []attempt{
		onDaemonSet("that runs another program", "prefetch", own(func(c *corev1.Container) { c.Command = []string{"/bin/sh", "-c", "id"} })),
		onDaemonSet("with privileges", "prefetch", own(func(c *corev1.Container) { c.SecurityContext = privileged })),
		onDaemonSet("with root's user", "prefetch", own(func(c *corev1.Container) {
			c.SecurityContext.RunAsNonRoot, c.SecurityContext.RunAsUser = new(false), new(int64(0))
		})),
		onDaemonSet("with a probe", "prefetch", own(func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "id"}}}}
		})),
		onDaemonSet("with the node's root", "host-path|prefetch", func(pod *corev1.PodTemplateSpec) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		}),
		onDaemonSet("with the node's processes", "host-namespaces", func(pod *corev1.PodTemplateSpec) { pod.Spec.HostPID = true }),
		onDaemonSet("beside another container", "prefetch", func(pod *corev1.PodTemplateSpec) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "more", Image: "proxy:1"}}
		}),
		onDaemonSet("of machines", "labels|containers", func(pod *corev1.PodTemplateSpec) { pod.Labels["bosh.cloudfoundry.org/role"] = "vm" }),
		onDaemonSet("of an image from elsewhere", "images", own(func(c *corev1.Container) { c.Image = "docker.io/library/debian:13" })),
		onDaemonSet("with a service account", "service-account", func(pod *corev1.PodTemplateSpec) { pod.Spec.ServiceAccountName = "bosh-cpi" }),
		onDaemonSet("before all others on any node", "priority-class", func(pod *corev1.PodTemplateSpec) { pod.Spec.PriorityClassName = "system-node-critical" }),
		{"a Pod that pulls an image, without its DaemonSet", "labels", func(ctx context.Context, a attacker) error {
			template := a.asPrefetched(ctx).Spec.Template
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "prefetch-three", Labels: template.Labels}, Spec: template.Spec}
			return a.makes(ctx, pod)
		}},
		{"somebody else's DaemonSet deleted", "foreign", func(ctx context.Context, a attacker) error {
			set := a.asPrefetched(ctx)
			set.Name, set.Labels = strings.Replace(set.Name, "two", "others", 1), nil
			if _, err := cluster.AppsV1().DaemonSets(a.namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
				return err
			}
			return a.client.AppsV1().DaemonSets(a.namespace).Delete(ctx, set.Name, metav1.DeleteOptions{})
		}},
	}
}
