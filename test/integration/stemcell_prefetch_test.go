package integration

import (
	"context"
	"maps"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/test/harness/director"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

// prefetchEnabled is stemcell.prefetch with defaults for all other settings.
var prefetchEnabled = map[string]any{"enabled": true}

// lightStemcell has the cloud_properties of the stemcell with the CID stemcellCID.
var lightStemcell = map[string]any{"image": stemcellCID}

// directorWithPrefetch returns the director of the environment with prefetch in stemcell.prefetch, and stemcellSettings in stemcell.
func (env testEnv) directorWithPrefetch(ctx context.Context, prefetch, stemcellSettings map[string]any) *director.Director {
	GinkgoHelper()
	waitForPermissions(ctx, env.namespace, authorizationv1.ResourceAttributes{Verb: "create", Group: "apps", Resource: "daemonsets", Namespace: env.namespace})
	section := map[string]any{"prefetch": prefetch}
	maps.Copy(section, stemcellSettings)
	return env.directorWithConfig("stemcell", section)
}

// listDaemonSets returns the DaemonSets in the namespace.
func (env testEnv) listDaemonSets(ctx context.Context) []appsv1.DaemonSet {
	GinkgoHelper()
	found, err := cluster.AppsV1().DaemonSets(env.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	return found.Items
}

// listPrefetchNodes returns the nodes that run a Pod of a prefetch DaemonSet.
func (env testEnv) listPrefetchNodes(ctx context.Context) []string {
	GinkgoHelper()
	found, err := cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=prefetch"})
	Expect(err).NotTo(HaveOccurred())
	var nodes []string
	for _, pod := range found.Items {
		if pod.Status.Phase == corev1.PodRunning {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	return nodes
}

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

var _ = Describe("A prefetched stemcell", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	It("is pulled by all nodes after create_stemcell, and its DaemonSet is deleted with it", func(ctx context.Context) {
		env.Director = env.directorWithPrefetch(ctx, prefetchEnabled, nil)
		Expect(env.mustCall(ctx, "create_stemcell", "image", lightStemcell).Text()).To(Equal(stemcellCID))
		sets := env.listDaemonSets(ctx)
		Expect(sets).To(HaveLen(1))
		Expect(sets[0].Spec.Template.Spec.Containers[0].Image).To(Equal(stemcellCID))
		Eventually(env.listPrefetchNodes).WithContext(ctx).Should(ContainElements("node-a", "node-b"))
		Expect(env.mustCall(ctx, "has_vm", "agent-one").Result).To(MatchJSON("false"))
		env.mustCall(ctx, "delete_stemcell", stemcellCID)
		Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty())
		env.mustCall(ctx, "delete_stemcell", stemcellCID)
	})

	It("is pulled only by the nodes that node_selector selects, from the mirror", func(ctx context.Context) {
		settings := map[string]any{"enabled": true, "node_selector": map[string]any{"topology.kubernetes.io/zone": "b", "test/name": "node-b"}}
		env.Director = env.directorWithPrefetch(ctx, settings, map[string]any{"registry_mirrors": map[string]any{"registry.example.com": "mirror.example.org"}})
		Expect(env.mustCall(ctx, "create_stemcell", "image", lightStemcell).Text()).To(Equal(stemcellCID))
		Expect(env.listDaemonSets(ctx)[0].Spec.Template.Spec.Containers[0].Image).To(HavePrefix("mirror.example.org/stemcell@sha256:"))
		Eventually(env.listPrefetchNodes).WithContext(ctx).Should(Equal([]string{"node-b"}))
	})

	It("has one DaemonSet after several uploads, which is recreated with other settings", func(ctx context.Context) {
		env.Director = env.directorWithPrefetch(ctx, prefetchEnabled, nil)
		env.mustCall(ctx, "create_stemcell", "image", lightStemcell)
		first := env.listDaemonSets(ctx)[0]
		env.mustCall(ctx, "create_stemcell", "image", lightStemcell)
		Expect(env.listDaemonSets(ctx)).To(ConsistOf(HaveField("UID", first.UID)))
		env.Director = env.directorWithPrefetch(ctx, map[string]any{
			"enabled": true, "node_selector": map[string]any{"test/name": "node-a"}, // not the nodes of other specs
			"tolerations": []any{map[string]any{"operator": "Exists"}},
		}, nil)
		env.mustCall(ctx, "create_stemcell", "image", lightStemcell)
		Expect(env.listDaemonSets(ctx)).To(ConsistOf(And(HaveField("Name", first.Name), Not(HaveField("UID", first.UID)),
			HaveField("Spec.Template.Spec.Tolerations", ConsistOf(corev1.Toleration{Operator: corev1.TolerationOpExists})))))
	})

	It("is pulled with the pull Secret if it is heavy, and cannot be deleted while a VM uses it", func(ctx context.Context) {
		registry := stemcells.NewRegistry(false)
		DeferCleanup(registry.Close)
		env.Director = env.directorWithPrefetch(ctx, prefetchEnabled, registrySettings(registry))
		image, properties := writeHeavyImage()
		cid := env.mustCall(ctx, "create_stemcell", image, properties).Text()
		pod := env.listDaemonSets(ctx)[0].Spec.Template.Spec
		Expect(pod.Containers[0].Image).To(HavePrefix("registry.example.com/bosh/stemcells@sha256:"))
		Expect(pod.ImagePullSecrets).To(ConsistOf(HaveField("Name", "stemcells")))
		_, err := cluster.CoreV1().Secrets(env.namespace).Get(ctx, "stemcells", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())

		env.mustCall(ctx, "create_vm", "one", cid, env.vmProperties, dynamicNetwork(), []string{}, map[string]any{})
		Expect(env.mustFail(ctx, "delete_stemcell", cid).Message).To(ContainSubstring("in use by VM agent-one"))
		Expect(env.listDaemonSets(ctx)).To(HaveLen(1))
		env.mustCall(ctx, "delete_vm", "agent-one")
		env.mustCall(ctx, "delete_stemcell", cid)
		Expect(env.listDaemonSets(ctx)).To(BeEmpty())
		Expect(registry.Requests()).To(ContainElement(HavePrefix("DELETE /v2/bosh/stemcells/manifests/sha256:")))
	})

	It("is pulled by Pods that meet the Pod Security Standard restricted, and have small limits", func(ctx context.Context) {
		env.Director = env.directorWithPrefetch(ctx, prefetchEnabled, nil)
		env.mustCall(ctx, "create_stemcell", "image", lightStemcell)
		_, err := cluster.CoreV1().Namespaces().Patch(ctx, env.namespace, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		template := env.listDaemonSets(ctx)[0].Spec.Template
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Name = "restricted"
		dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		_, err = cluster.CoreV1().Pods(env.namespace).Create(ctx, pod, dryRun)
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Spec.Containers[0].Resources.Limits).To(Equal(corev1.ResourceList{"cpu": quantity("100m"), "memory": quantity("32Mi")}))
		pod.Spec.Containers[0].SecurityContext = nil
		_, err = cluster.CoreV1().Pods(env.namespace).Create(ctx, pod, dryRun)
		Expect(err).To(MatchError(ContainSubstring("violates PodSecurity")))
	})

	It("is not pushed if the CPI cannot create DaemonSets, and the error and the preflight check name the permission", func(ctx context.Context) {
		registry := stemcells.NewRegistry(false)
		DeferCleanup(registry.Close)
		env.Director = env.directorWithPrefetch(ctx, prefetchEnabled, registrySettings(registry))
		Expect(runCheck(ctx, env.Director).results["permissions-prefetch"]).To(matchResult(preflight.OK, "daemonsets", ""))
		Expect(cluster.RbacV1().RoleBindings(env.namespace).Delete(ctx, "bosh-cpi-prefetch", metav1.DeleteOptions{})).To(Succeed())
		nameMissingPermission := HaveField("Error", HaveField("Message", And(ContainSubstring("manifests/rbac-prefetch.yaml"), ContainSubstring("daemonsets.apps"))))
		Eventually(func() (director.Response, error) { return env.Call(ctx, "delete_stemcell", stemcellCID) }).WithContext(ctx).Should(nameMissingPermission)
		image, properties := writeHeavyImage()
		failed, err := env.Call(ctx, "create_stemcell", image, properties)
		Expect(err).NotTo(HaveOccurred())
		Expect(failed).To(nameMissingPermission)
		Expect(registry.UploadCounts()).To(BeEmpty())
		Expect(env.Call(ctx, "create_stemcell", "image", lightStemcell)).To(nameMissingPermission)
		Expect(runCheck(ctx, env.Director).results["permissions-prefetch"]).To(matchResult(preflight.Fails, "missing: daemonsets (get, list, create, delete)", "manifests/rbac-prefetch.yaml"))
		Expect(env.runCollect(ctx, director.UUID)).To(Equal([]string{"no orphaned resources"}))
	})

	It("does not adopt or delete a DaemonSet of another director", func(ctx context.Context) {
		env.Director = env.directorWithPrefetch(ctx, prefetchEnabled, nil)
		env.mustCall(ctx, "create_stemcell", "image", lightStemcell)
		unmanaged := env.listDaemonSets(ctx)[0]
		_, err := cluster.AppsV1().DaemonSets(env.namespace).Patch(ctx, unmanaged.Name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"bosh.cloudfoundry.org/director-uuid":"another"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(env.mustFail(ctx, "create_stemcell", "image", lightStemcell).Message).To(ContainSubstring("does not belong to this director"))
		env.mustCall(ctx, "delete_stemcell", stemcellCID)
		Expect(env.listDaemonSets(ctx)).To(ConsistOf(HaveField("UID", unmanaged.UID)))
	})

	It("has an orphaned DaemonSet after the setting is disabled, and calls no longer send requests for it", func(ctx context.Context) {
		d := env.directorWithPrefetch(ctx, prefetchEnabled, nil)
		_, err := d.Call(ctx, "create_stemcell", "image", lightStemcell)
		Expect(err).NotTo(HaveOccurred())
		name := env.listDaemonSets(ctx)[0].Name
		Expect(env.listOrphans(ctx, d.Config)).To(Equal([]string{"no orphaned resources"}))

		proxy.Reset(nil)
		env.mustCall(ctx, "delete_stemcell", stemcellCID)
		Expect(proxy.Requests()).To(BeEmpty())
		Expect(env.runCollect(ctx, director.UUID)).To(ContainElement(And(HavePrefix("DaemonSet "+env.namespace+"/"+name+" ("),
			ContainSubstring(stemcellCID), HaveSuffix("stemcell.prefetch is disabled: would be deleted"))))
		env.runCollect(ctx, director.UUID, "-confirm")
		Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty())
	})
})
