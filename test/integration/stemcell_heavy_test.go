package integration

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/director"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

// writeHeavyImage writes the unpacked image of a heavy stemcell, and returns its path and the cloud_properties.
func writeHeavyImage() (path string, properties map[string]any) {
	GinkgoHelper()
	path = filepath.Join(GinkgoT().TempDir(), "image")
	Expect(os.WriteFile(path, stemcells.Jammy.Image(), 0o600)).To(Succeed())
	return path, map[string]any{"name": "bosh-warden-boshlite-ubuntu-jammy-go_agent", "version": "1.10", "infrastructure": "warden"}
}

// registrySettings returns the settings of stemcell for the registry, with a pull_repository that the admission policy allows.
func registrySettings(registry *stemcells.Registry) map[string]any {
	return map[string]any{"registry": map[string]any{
		"repository": registry.Host() + "/bosh/stemcells", "pull_repository": "registry.example.com/bosh/stemcells", "insecure": true,
		"pull_secret": map[string]any{"name": "stemcells", "username": "nodes", "password": "read"},
	}}
}

var _ = Describe("A heavy stemcell", func() {
	var (
		env      testEnv
		registry *stemcells.Registry
		cid      string
	)
	BeforeEach(func(ctx context.Context) {
		env = newTestEnv(ctx)
		registry = stemcells.NewRegistry(false)
		DeferCleanup(registry.Close)
		env.Director = env.directorWithConfig("stemcell", registrySettings(registry))
		image, properties := writeHeavyImage()
		proxy.Reset(nil)
		cid = env.mustCall(ctx, "create_stemcell", image, properties).Text()
	})
	createVM := func(ctx context.Context, agent, stemcell string) {
		GinkgoHelper()
		env.mustCall(ctx, "create_vm", agent, stemcell, env.vmProperties, dynamicNetwork(), []string{}, map[string]any{})
	}
	readPullSecret := func(ctx context.Context) string {
		GinkgoHelper()
		found, err := cluster.CoreV1().Secrets(env.namespace).Get(ctx, "stemcells", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Type).To(Equal(corev1.SecretTypeDockerConfigJson))
		return string(found.Data[corev1.DockerConfigJsonKey])
	}
	deleteRequest := HavePrefix("DELETE /v2/bosh/stemcells/manifests/sha256:")

	It("is created without a request to the cluster, and deleted with two that find VMs that use it", func(ctx context.Context) {
		Expect(proxy.Requests()).To(BeEmpty())
		env.mustCall(ctx, "delete_stemcell", cid)
		Expect(proxy.Requests()).To(Equal([]string{"GET namespaces/" + env.namespace + "/pods", "GET namespaces/" + env.namespace + "/podtemplates"}))
		Expect(registry.Requests()).To(ContainElement(deleteRequest))
		env.mustCall(ctx, "delete_stemcell", cid)
	})

	It("keeps its image while a VM uses it, even if the VM has an older CID without architectures", func(ctx context.Context) {
		createVM(ctx, "one", cid)
		Expect(env.mustFail(ctx, "delete_stemcell", cid).Message).To(ContainSubstring("in use by VM agent-one"))
		formerCID, _, noted := strings.Cut(cid, "#")
		Expect(noted).To(BeTrue())
		Expect(env.annotatePod(ctx, "agent-one", manifest.AnnotationStemcell, &formerCID)).To(Succeed())
		Expect(env.mustFail(ctx, "delete_stemcell", cid)).To(Equal(director.Error{Type: "Bosh::Clouds::CloudError",
			Message: "stemcell " + cid + " is in use by VM agent-one; delete or recreate that VM first [stemcell-in-use]"}))
		Expect(registry.Requests()).NotTo(ContainElement(deleteRequest))
	})

	It("keeps its image for a VM with disk_strategy: recreate after the eviction of its Pod", func(ctx context.Context) {
		env.mustCall(ctx, "create_vm", "one", cid, map[string]any{"disk_strategy": "recreate", "ephemeral_disk": 64}, dynamicNetwork(), []string{}, map[string]any{})
		env.deletePodAndWait(ctx, "agent-one")
		Expect(env.mustFail(ctx, "delete_stemcell", cid).Message).To(ContainSubstring("in use by VM agent-one"))
	})

	It("is pulled with a Secret in the namespace that has the credentials of the current configuration", func(ctx context.Context) {
		createVM(ctx, "one", cid)
		pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, "agent-one", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Spec.ImagePullSecrets).To(Equal([]corev1.LocalObjectReference{{Name: "stemcells"}}))
		Expect(pod.Spec.Containers[0].Image).To(HavePrefix("registry.example.com/bosh/stemcells@sha256:"))
		Expect(readPullSecret(ctx)).To(And(ContainSubstring(`"registry.example.com"`), ContainSubstring(`"username":"nodes"`), ContainSubstring(`"password":"read"`)))

		settings := registrySettings(registry)
		settings["registry"].(map[string]any)["pull_secret"].(map[string]any)["password"] = "other"
		env.Director = env.directorWithConfig("stemcell", settings)
		createVM(ctx, "two", cid)
		Expect(readPullSecret(ctx)).To(ContainSubstring(`"password":"other"`))
	})

	It("requires one GET, and no change, of a pull Secret that is up to date", func(ctx context.Context) {
		createVM(ctx, "one", cid)
		proxy.Reset(nil)
		createVM(ctx, "two", cid)
		Expect(slices.DeleteFunc(proxy.Requests(), func(request string) bool { return !strings.Contains(request, "/secrets") })).To(ConsistOf(
			"GET namespaces/"+env.namespace+"/secrets/stemcells",
			"POST namespaces/"+env.namespace+"/secrets", // the agent settings of the VM
		))
	})

	It("is not pulled with a Secret that the CPI did not create, and the Secret stays unchanged", func(ctx context.Context) {
		_, err := cluster.CoreV1().Secrets(env.namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "stemcells"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		failed := env.mustFail(ctx, "create_vm", "one", cid, env.vmProperties, dynamicNetwork(), []string{}, map[string]any{})
		Expect(failed.Message).To(ContainSubstring("kubernetes.stemcell.registry.pull_secret.name stemcells names a Secret that the CPI did not create"))
		Expect(env.listObjects(ctx)).To(ConsistOf("Secret/stemcells"))
		found, err := cluster.CoreV1().Secrets(env.namespace).Get(ctx, "stemcells", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Data).To(BeEmpty())
	})

	It("has a pull Secret for its own registry only", func(ctx context.Context) {
		createVM(ctx, "one", "mirror.example.org/stemcell@sha256:"+strings.Repeat("0", 64))
		pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, "agent-one", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Spec.ImagePullSecrets).To(BeEmpty())
		_, err = cluster.CoreV1().Secrets(env.namespace).Get(ctx, "stemcells", metav1.GetOptions{})
		Expect(err).To(MatchError(ContainSubstring("not found")))
	})
})
