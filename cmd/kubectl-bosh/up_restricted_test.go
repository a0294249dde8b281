package main_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/director"
)

var _ = Describe("kubectl bosh up and down", func() {
	var ws workspace
	BeforeEach(func() { ws = newWorkspaceWithCLI() })

	It("with --restricted, limit the CPI to the images of the director by an admission policy, and keep it for other namespaces", func(ctx SpecContext) {
		ws.writeImages(ctx)
		Expect(ws.up("--restricted", "--credentials", "kubeconfig")).To(gexec.Exit(0))
		config, err := clientcmd.BuildConfigFromFlags("", ws.path("kubernetes/cpi.kubeconfig"))
		Expect(err).NotTo(HaveOccurred())
		client, err := kubernetes.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		create := func(image string) error {
			pod := manifest.VM{Name: "agent-try", Namespace: ws.namespace, Image: image, NodeImage: director.NodeImage}.Pod()
			_, err := client.CoreV1().Pods(ws.namespace).Create(ctx, pod.Pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
		stemcell := "registry.example.com/stemcell@sha256:" + strings.Repeat("1", 64)
		Expect(create(stemcell)).To(Succeed(), "a later stemcell")
		Expect(create("registry.example.com/stemcells/other")).To(MatchError(ContainSubstring("rule images")))
		policies, err := cluster.NetworkingV1().NetworkPolicies(ws.namespace).List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(policies.Items).To(HaveLen(4))

		session := ws.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`ConfigMap ` + ws.namespace + `/bosh-cpi-limits, ValidatingAdmissionPolicy bosh-cpi-shape, .*: unchanged\n`))

		session = ws.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say("ValidatingAdmissionPolicyBinding bosh-cpi-objects: kept for other namespaces\n"))
		ws.expectDeleted(ctx)
	})

	It("with --restricted, restrict an existing namespace until down", func(ctx SpecContext) {
		ws.namespace = newTestEnv(ctx).namespace
		ws.writeImages(ctx)
		Expect(ws.up("--restricted", "--credentials", "kubeconfig")).To(gexec.Exit(0))
		ws.write("kubernetes/admission-limits.yaml", strings.Replace(ws.read("kubernetes/admission-limits.yaml"), `  privileged_vms: "true"`, "", 1))
		Expect(ws.run("y\n", "up", "--bosh", "./create-env")).To(gexec.Exit(0))
		limits, err := cluster.CoreV1().ConfigMaps(ws.namespace).Get(ctx, "bosh-cpi-limits", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(limits.Data).NotTo(HaveKey("privileged_vms"), "the operator removed it")

		session := ws.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say("ConfigMap " + ws.namespace + "/bosh-cpi-limits: deleted\n"))
		namespace, err := cluster.CoreV1().Namespaces().Get(ctx, ws.namespace, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(namespace.Labels).NotTo(HaveKey("bosh.cloudfoundry.org/admission-policy"))
	})

	It("with --restricted, report why the API server rejects VMs before it applies the policy", func(ctx SpecContext) {
		ws.namespace = newTestEnv(ctx).namespace
		_, err := cluster.CoreV1().LimitRanges(ws.namespace).Create(ctx, &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Name: "minimum"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypePod, Min: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
			}}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		ws.writeImages(ctx)
		session := ws.up("--restricted", "--credentials", "kubeconfig")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`^error: cannot verify that the admission policy is in effect in namespace \S+: .*minimum cpu usage per Pod is 1`))
	})

	It("with --restricted, write no limits without the BOSH CLI, which shows the StorageClasses of disks", func(ctx SpecContext) {
		ws.writeImages(ctx)
		session := ws.startWith([]string{"PATH=/empty"}, "", append(firstRunArgs, "--namespace", ws.namespace, "--restricted", "--dry-run")...)
		Eventually(session).Should(gexec.Exit(0))
		Expect(ws.path("kubernetes/admission-limits.yaml")).NotTo(BeAnExistingFile())
	})

	It("with --restricted, keep the restrictions of an administrator", func(ctx SpecContext) {
		ws.namespace = newTestEnv(ctx).namespace
		ws.writeImages(ctx)
		_, err := cluster.CoreV1().ConfigMaps(ws.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bosh-cpi-limits"},
			Data: map[string]string{"images": "registry.example.com/"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = controlPlane.Kubectl(ctx, "label", "namespace", ws.namespace, "bosh.cloudfoundry.org/admission-policy=on")
		Expect(err).NotTo(HaveOccurred())
		session := ws.up("--restricted", "--credentials", "kubeconfig")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Out).To(gbytes.Say("ConfigMap " + ws.namespace + "/bosh-cpi-limits: kept: not created by `up`\n"))
		Expect(session.Out).To(gbytes.Say("rule node-images: .*, which does not list " + director.NodeImage))
		Expect(ws.down()).To(gexec.Exit(0))
		namespace, err := cluster.CoreV1().Namespaces().Get(ctx, ws.namespace, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(namespace.Labels).To(HaveKeyWithValue("bosh.cloudfoundry.org/admission-policy", "on"))
		_, err = cluster.CoreV1().ConfigMaps(ws.namespace).Get(ctx, "bosh-cpi-limits", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
	})
})
