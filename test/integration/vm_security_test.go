package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/attacks"
	"bosh-kubernetes-cpi/test/harness/director"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// readRepoFile returns the content of a file in the repository.
func readRepoFile(path string) string {
	GinkgoHelper()
	raw, err := os.ReadFile("../../" + path)
	Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

// suiteAdmissionLimits are the values in manifests/admission-limits.yaml that the specs require. The recorded director uses stemcells from
// registry.local, and stemcells with the name prefix sc-.
var suiteAdmissionLimits = map[string]string{
	"images":           "registry.example.com/\nregistry.local/\nsc-\nmirror.example.org/\n",
	"sidecars":         "proxy:1\nmirror.example.org/proxy:1\n",
	"priority_classes": "important\nlow-priority\nnone\n",
	"service_accounts": "none\n",
	"storage_classes":  "standard\nimmediate\ngrowing\nnone\nvanished\nof-driver\n",
	"external_ips":     "true",
	"node_images":      director.NodeImage + "\nmirror.example.org/" + director.NodeImage, // see podMutations
}

// admissionPolicyLabels enable the admission policy in a namespace.
var admissionPolicyLabels = map[string]string{"bosh.cloudfoundry.org/admission-policy": "on"}

// createAdmissionLimits creates the limits of the admission policy in a namespace. Without them, the policy rejects all objects of the CPI.
func createAdmissionLimits(ctx context.Context, namespace string) {
	GinkgoHelper()
	limits, err := attacks.PolicyLimits("../..", suiteAdmissionLimits)
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.CoreV1().ConfigMaps(namespace).Create(ctx, limits, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// changeAdmissionLimits changes these limits of the environment's namespace.
func (env testEnv) changeAdmissionLimits(ctx context.Context, limits map[string]string) {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"data": limits})
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.CoreV1().ConfigMaps(env.namespace).Patch(ctx, "bosh-cpi-limits", types.MergePatchType, patch, metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// waitForRule waits until the admission policy rejects a privileged VM Pod that requires node-a by this rule.
func (env testEnv) waitForRule(ctx context.Context, rule string) {
	GinkgoHelper()
	pod := manifest.VM{Name: "agent-other", Namespace: env.namespace, Image: stemcellCID, NodeImage: director.NodeImage}.Pod()
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-a"}}}}}}}}
	Eventually(func() string {
		return fmt.Sprint(cluster.CoreV1().RESTClient().Post().Namespace(env.namespace).Resource("pods").Param("dryRun", metav1.DryRunAll).
			SetHeader("Impersonate-User", "system:serviceaccount:"+env.namespace+":bosh-cpi").Body(pod.Pod).Do(ctx).Error())
	}).WithContext(ctx).Should(ContainSubstring("rule " + rule + ":"))
}

// waitForAdmissionLimits waits until the admission policy finds its limits in the namespace, by dry-run requests with the CPI's permissions.
func waitForAdmissionLimits(ctx context.Context, namespace string) {
	GinkgoHelper()
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "try"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
	}}
	Eventually(func() string {
		err := cluster.CoreV1().RESTClient().Post().Namespace(namespace).Resource("persistentvolumeclaims").Param("dryRun", metav1.DryRunAll).
			SetHeader("Impersonate-User", "system:serviceaccount:"+namespace+":bosh-cpi").
			Body(pvc).Do(ctx).Error()
		return fmt.Sprint(err)
	}).WithContext(ctx).ShouldNot(ContainSubstring("no params found"))
}

var _ = Describe("An unprivileged VM", func() {
	It("has the capabilities and profiles in its cloud_properties", func(ctx context.Context) {
		env := newTestEnv(ctx)
		env.vmProperties = map[string]any{"security": map[string]any{
			"privileged": false, "capabilities": map[string]any{"add": []string{"SYS_ADMIN"}},
			"seccomp_profile":  map[string]any{"type": "Localhost", "localhostProfile": "bosh/vm.json"},
			"apparmor_profile": map[string]any{"type": "Unconfined"},
		}}
		pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, env.createVM(ctx, "one"), metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Spec.Containers[0].SecurityContext).To(Equal(&corev1.SecurityContext{
			Privileged: new(false), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}},
			SeccompProfile:  &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new("bosh/vm.json")},
			AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined},
		}))
	})
})

var _ = Describe("A VM with kubernetes.pods.lxcfs_path", func() {
	It("has a read-only mount of the lxcfs of its node, and the admission policy admits it", func(ctx context.Context) {
		env := newTestEnv(ctx)
		env.Director = env.directorWithConfig("pods", map[string]any{"lxcfs_path": "/var/lib/lxcfs"})
		pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, env.createVM(ctx, "one"), metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Spec.Containers[0].VolumeMounts).To(ContainElement(corev1.VolumeMount{
			Name: "lxcfs", MountPath: "/bosh/lxcfs", ReadOnly: true, MountPropagation: new(corev1.MountPropagationHostToContainer)}))
	})
})

var _ = Describe("The network policies", func() {
	It("are valid, and select VM Pods by the labels of the CPI", func(ctx context.Context) {
		env, vm := newTestEnvWithVM(ctx)
		_, err := embedded.RunInput(ctx, readRepoFile("manifests/network-policy.yaml"), "kubectl", "--kubeconfig", plane.Kubeconfig("admin"),
			"apply", "--namespace", env.namespace, "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		policy, err := cluster.NetworkingV1().NetworkPolicies(env.namespace).Get(ctx, "bosh-vms-ingress", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		selected, err := cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&policy.Spec.PodSelector)})
		Expect(err).NotTo(HaveOccurred())
		Expect(selected.Items).To(ConsistOf(HaveField("Name", vm)))
	})
})
