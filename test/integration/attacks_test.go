package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"bosh-kubernetes-cpi/kube/manifest"
)

// attacker is somebody with the CPI's token in a namespace with a machine that has a disk.
type attacker struct {
	world
	client           kubernetes.Interface
	vm, disk         string
	machine, holding *corev1.Pod // as they are in the cluster
}

func newAttacker(ctx context.Context) attacker {
	GinkgoHelper()
	a := attacker{world: newWorld(ctx)}
	a.vm, a.disk = a.createVM(ctx, "one"), a.createDisk(ctx)
	a.must(ctx, "attach_disk", a.vm, a.disk)
	var err error
	a.machine, err = cluster.CoreV1().Pods(a.namespace).Get(ctx, a.vm, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	a.holding, err = cluster.CoreV1().Pods(a.namespace).Get(ctx, a.disk+"-attachment", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	token, err := cluster.CoreV1().ServiceAccounts(a.namespace).CreateToken(ctx, "bosh-cpi", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	config.BearerToken = token.Status.Token
	a.client, err = kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return a
}

// vmPod is a machine as the CPI makes it, and attachment what attaches a disk to the one that runs.
func (a attacker) vmPod() *corev1.Pod {
	return manifest.VM{Name: "agent-two", Namespace: a.namespace, Image: stemcellCID}.Pod()
}

func (a attacker) attachment() *corev1.Pod {
	return manifest.Attachment{Disk: "disk-two", SizeMiB: 64, Filesystem: "ext4", Mode: corev1.PersistentVolumeFilesystem, VM: a.machine}.Pod()
}

func (a attacker) template() *corev1.PodTemplate {
	return manifest.VM{Name: "agent-two", Namespace: a.namespace, Image: stemcellCID, Recreate: true, EphemeralClaim: &corev1.PersistentVolumeClaimSpec{}}.Template()
}

func (a attacker) makes(ctx context.Context, pod *corev1.Pod) error {
	_, err := a.client.CoreV1().Pods(a.namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

func (a attacker) patches(ctx context.Context, pod string, patch any, subresources ...string) error {
	raw, err := json.Marshal(patch)
	Expect(err).NotTo(HaveOccurred())
	_, err = a.client.CoreV1().Pods(a.namespace).Patch(ctx, pod, types.StrategicMergePatchType, raw, metav1.PatchOptions{}, subresources...)
	return err
}

// debugs adds an ephemeral container, which the change makes of a proof.
func (a attacker) debugs(ctx context.Context, pod string, change func(*corev1.EphemeralContainer)) error {
	proof := manifest.Release(a.holding)
	change(&proof)
	return a.patches(ctx, pod, map[string]any{"spec": map[string]any{"ephemeralContainers": []any{proof}}}, "ephemeralcontainers")
}

// attempt is what somebody with the CPI's token may try, and the rule that refuses it: one of these, where two policies
// refuse it and the API server names either.
type attempt struct {
	what, rule string
	try        func(context.Context, attacker) error
}

func (a attempt) refused(err error) bool {
	for rule := range strings.SplitSeq(a.rule, "|") {
		if err != nil && strings.Contains(err.Error(), "rule "+rule+":") {
			return true
		}
	}
	return false
}

// onMachine and onAttachment are attempts to make such a Pod with a change.
func onMachine(what, rule string, change func(*corev1.Pod)) attempt {
	return attempt{"a machine " + what, rule, func(ctx context.Context, a attacker) error {
		pod := a.vmPod()
		change(pod)
		return a.makes(ctx, pod)
	}}
}

func onAttachment(what, rule string, change func(*corev1.Pod)) attempt {
	return attempt{"an attachment " + what, rule, func(ctx context.Context, a attacker) error {
		pod := a.attachment()
		change(pod)
		return a.makes(ctx, pod)
	}}
}

func onProof(what, rule string, change func(*corev1.EphemeralContainer)) attempt {
	return attempt{"a proof " + what, rule, func(ctx context.Context, a attacker) error {
		return a.debugs(ctx, a.holding.Name, change)
	}}
}

// disksAt mounts the disk there.
func disksAt(path string) func(*corev1.Container) {
	return func(c *corev1.Container) {
		for i := range c.VolumeMounts {
			if c.VolumeMounts[i].Name == "disk" {
				c.VolumeMounts[i].MountPath = path
			}
		}
	}
}

func hostPath(path string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "more", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}})
	}
}

func volume(source corev1.VolumeSource) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "more", VolumeSource: source})
	}
}

func sidecar(container corev1.Container) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		container.Name = "more"
		if container.Image == "" {
			container.Image = "proxy:1"
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
}

func env(name, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: name, Value: value})
	}
}

var privileged = &corev1.SecurityContext{Privileged: new(true)}

var _ = Describe("Somebody with the CPI's token", func() {
	It("can make what the CPI makes, and none of what would give more", func(ctx context.Context) {
		a := newAttacker(ctx)
		dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		for _, pod := range []*corev1.Pod{a.vmPod(), a.attachment(), manifest.Reboot(a.machine, ""), manifest.Flush(a.holding, "")} {
			_, err := a.client.CoreV1().Pods(a.namespace).Create(ctx, pod, dry)
			Expect(err).NotTo(HaveOccurred(), pod.Name)
		}
		_, err := a.client.CoreV1().PodTemplates(a.namespace).Create(ctx, a.template(), dry)
		Expect(err).NotTo(HaveOccurred())

		var table strings.Builder
		rows := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		var admitted []string
		all := attempts()
		Expect(len(all)).To(BeNumerically(">=", 40))
		for _, each := range all {
			err := each.try(ctx, a)
			if !each.refused(err) {
				admitted = append(admitted, fmt.Sprintf("%s, which the rule %s was to refuse: %v", each.what, each.rule, err))
			}
			fmt.Fprintf(rows, "%s\t%s\n", each.what, each.rule)
		}
		Expect(rows.Flush()).To(Succeed())
		AddReportEntry("refused, and by which rule", "\n"+table.String(), ReportEntryVisibilityAlways)
		Expect(admitted).To(BeEmpty())
	})

	It("can make less where the ConfigMap of the limits says so", func(ctx context.Context) {
		a := newAttacker(ctx)
		limits, err := cluster.CoreV1().ConfigMaps(a.namespace).Get(ctx, "bosh-cpi-limits", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		limits.Data["privileged_machines"], limits.Data["external_ips"] = "false", "false"
		limits.Data["node_selector"], limits.Data["nodes"] = "dedicated=bosh\n", "node-of-bosh\n"
		_, err = cluster.CoreV1().ConfigMaps(a.namespace).Update(ctx, limits, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())

		confined := func(pod *corev1.Pod) {
			pod.Spec.Containers[0].SecurityContext = nil
			pod.Spec.NodeSelector = map[string]string{"dedicated": "bosh"}
		}
		for _, each := range []attempt{
			onMachine("that is privileged", "privileged", func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"dedicated": "bosh"} }),
			onMachine("on any node", "node-selector", func(pod *corev1.Pod) { pod.Spec.Containers[0].SecurityContext = nil }),
			onAttachment("on another node", "nodes", func(*corev1.Pod) {}),
			onAttachment("on any node", "nodes", func(pod *corev1.Pod) { pod.Spec.Affinity = nil }),
			{"a Service with an external IP", "external-ips", func(ctx context.Context, a attacker) error {
				service := manifest.Service{Name: "vip", Type: corev1.ServiceTypeClusterIP, ExternalIPs: []string{"192.0.2.7"}, Ports: []corev1.ServicePort{{Port: 80}}}
				_, err := a.client.CoreV1().Services(a.namespace).Create(ctx, service.Object(a.machine, ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				return err
			}},
		} {
			Eventually(func() bool { return each.refused(each.try(ctx, a)) }).WithContext(ctx).Should(BeTrue(), each.what)
		}
		Expect(onMachine("as it is wanted", "", confined).try(ctx, a)).To(Succeed())
	})
})
