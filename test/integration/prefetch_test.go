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
	"bosh-kubernetes-cpi/test/director"
	"bosh-kubernetes-cpi/test/stemcells"
)

// enabled is stemcell.prefetch with nothing beside.
var enabled = map[string]any{"enabled": true}

// light are the cloud_properties of a stemcell whose CID is stemcellCID.
var light = map[string]any{"image": stemcellCID}

// prefetching is the world's director with this stemcell.prefetch, and more of the section.
func (w world) prefetching(ctx context.Context, settings, more map[string]any) *director.Director {
	GinkgoHelper()
	awaitRights(ctx, w.namespace, authorizationv1.ResourceAttributes{Verb: "create", Group: "apps", Resource: "daemonsets", Namespace: w.namespace})
	section := map[string]any{"prefetch": settings}
	maps.Copy(section, more)
	return w.with("stemcell", section)
}

// pulling are the namespace's DaemonSets.
func (w world) pulling(ctx context.Context) []appsv1.DaemonSet {
	GinkgoHelper()
	found, err := cluster.AppsV1().DaemonSets(w.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	return found.Items
}

// pulledOn are the nodes on which a DaemonSet's Pod runs.
func (w world) pulledOn(ctx context.Context) []string {
	GinkgoHelper()
	found, err := cluster.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=prefetch"})
	Expect(err).NotTo(HaveOccurred())
	var nodes []string
	for _, pod := range found.Items {
		if pod.Status.Phase == corev1.PodRunning {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	return nodes
}

// heavyImage is the path of a heavy stemcell's image, as the director has unpacked it, with its cloud_properties.
func heavyImage() (string, map[string]any) {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "image")
	Expect(os.WriteFile(path, stemcells.Jammy.Image(), 0o600)).To(Succeed())
	return path, map[string]any{"name": "bosh-warden-boshlite-ubuntu-jammy-go_agent", "version": "1.10", "infrastructure": "warden"}
}

// pushedTo are the settings of a registry whose images the nodes know by a name that the namespace's policy allows.
func pushedTo(registry *stemcells.Registry) map[string]any {
	return map[string]any{"registry": map[string]any{
		"repository": registry.Host() + "/bosh/stemcells", "pull_repository": "registry.example.com/bosh/stemcells", "insecure": true,
		"pull_secret": map[string]any{"name": "stemcells", "username": "nodes", "password": "read"},
	}}
}

var _ = Describe("A stemcell whose image nodes pull before it is needed", func() {
	var w world
	BeforeEach(func(ctx context.Context) { w = newWorld(ctx) })

	It("is on all nodes with its first upload, and on none by it once it is deleted", func(ctx context.Context) {
		w.Director = w.prefetching(ctx, enabled, nil)
		Expect(w.must(ctx, "create_stemcell", "image", light).Text()).To(Equal(stemcellCID))
		sets := w.pulling(ctx)
		Expect(sets).To(HaveLen(1))
		Expect(sets[0].Spec.Template.Spec.Containers[0].Image).To(Equal(stemcellCID))
		Eventually(w.pulledOn).WithContext(ctx).Should(ContainElements("node-a", "node-b"))
		Expect(w.must(ctx, "has_vm", "agent-one").Result).To(MatchJSON("false"))
		w.must(ctx, "delete_stemcell", stemcellCID)
		Eventually(w.objects).WithContext(ctx).Should(BeEmpty())
		w.must(ctx, "delete_stemcell", stemcellCID)
	})

	It("is on the nodes of the selector alone, from the mirror", func(ctx context.Context) {
		settings := map[string]any{"enabled": true, "node_selector": map[string]any{"topology.kubernetes.io/zone": "b", "test/name": "node-b"}}
		w.Director = w.prefetching(ctx, settings, map[string]any{"registry_mirrors": map[string]any{"registry.example.com": "mirror.example.org"}})
		Expect(w.must(ctx, "create_stemcell", "image", light).Text()).To(Equal(stemcellCID))
		Expect(w.pulling(ctx)[0].Spec.Template.Spec.Containers[0].Image).To(HavePrefix("mirror.example.org/stemcell@sha256:"))
		Eventually(w.pulledOn).WithContext(ctx).Should(Equal([]string{"node-b"}))
	})

	It("has one DaemonSet however often it is uploaded, which is made anew with other settings", func(ctx context.Context) {
		w.Director = w.prefetching(ctx, enabled, nil)
		w.must(ctx, "create_stemcell", "image", light)
		first := w.pulling(ctx)[0]
		w.must(ctx, "create_stemcell", "image", light)
		Expect(w.pulling(ctx)).To(ConsistOf(HaveField("UID", first.UID)))
		w.Director = w.prefetching(ctx, map[string]any{
			"enabled": true, "node_selector": map[string]any{"test/name": "node-a"}, // not the nodes of other specs
			"tolerations": []any{map[string]any{"operator": "Exists"}},
		}, nil)
		w.must(ctx, "create_stemcell", "image", light)
		Expect(w.pulling(ctx)).To(ConsistOf(And(HaveField("Name", first.Name), Not(HaveField("UID", first.UID)),
			HaveField("Spec.Template.Spec.Tolerations", ConsistOf(corev1.Toleration{Operator: corev1.TolerationOpExists})))))
	})

	It("is pulled with the registry's credentials when it is heavy, and stays while a VM uses it", func(ctx context.Context) {
		registry := stemcells.NewRegistry(false)
		DeferCleanup(registry.Close)
		w.Director = w.prefetching(ctx, enabled, pushedTo(registry))
		image, properties := heavyImage()
		cid := w.must(ctx, "create_stemcell", image, properties).Text()
		pod := w.pulling(ctx)[0].Spec.Template.Spec
		Expect(pod.Containers[0].Image).To(HavePrefix("registry.example.com/bosh/stemcells@sha256:"))
		Expect(pod.ImagePullSecrets).To(ConsistOf(HaveField("Name", "stemcells")))
		_, err := cluster.CoreV1().Secrets(w.namespace).Get(ctx, "stemcells", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())

		w.must(ctx, "create_vm", "one", cid, w.vm, onDynamic(), []string{}, map[string]any{})
		Expect(w.fails(ctx, "delete_stemcell", cid).Message).To(ContainSubstring("in use by VM agent-one"))
		Expect(w.pulling(ctx)).To(HaveLen(1))
		w.must(ctx, "delete_vm", "agent-one")
		w.must(ctx, "delete_stemcell", cid)
		Expect(w.pulling(ctx)).To(BeEmpty())
		Expect(registry.Requests()).To(ContainElement(HavePrefix("DELETE /v2/bosh/stemcells/manifests/sha256:")))
	})

	It("runs there as the Pod Security Standard `restricted` wants it, with little", func(ctx context.Context) {
		w.Director = w.prefetching(ctx, enabled, nil)
		w.must(ctx, "create_stemcell", "image", light)
		_, err := cluster.CoreV1().Namespaces().Patch(ctx, w.namespace, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		template := w.pulling(ctx)[0].Spec.Template
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Name = "restricted"
		dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		_, err = cluster.CoreV1().Pods(w.namespace).Create(ctx, pod, dry)
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Spec.Containers[0].Resources.Limits).To(Equal(corev1.ResourceList{"cpu": amount("100m"), "memory": amount("32Mi")}))
		pod.Spec.Containers[0].SecurityContext = nil
		_, err = cluster.CoreV1().Pods(w.namespace).Create(ctx, pod, dry)
		Expect(err).To(MatchError(ContainSubstring("violates PodSecurity")))
	})

	It("is not pushed where the CPI has not the right to have it pulled, which the answer and the check name", func(ctx context.Context) {
		registry := stemcells.NewRegistry(false)
		DeferCleanup(registry.Close)
		w.Director = w.prefetching(ctx, enabled, pushedTo(registry))
		Expect(checked(ctx, w.Director).results["rights-prefetch"]).To(are(preflight.OK, "daemonsets", ""))
		Expect(cluster.RbacV1().RoleBindings(w.namespace).Delete(ctx, "bosh-cpi-prefetch", metav1.DeleteOptions{})).To(Succeed())
		lacks := HaveField("Error", HaveField("Message", And(ContainSubstring("docs/rbac-prefetch.yaml"), ContainSubstring("daemonsets.apps"))))
		Eventually(func() (director.Response, error) { return w.Call(ctx, "delete_stemcell", stemcellCID) }).WithContext(ctx).Should(lacks)
		image, properties := heavyImage()
		refused, err := w.Call(ctx, "create_stemcell", image, properties)
		Expect(err).NotTo(HaveOccurred())
		Expect(refused).To(lacks)
		Expect(registry.UploadCounts()).To(BeEmpty())
		Expect(w.Call(ctx, "create_stemcell", "image", light)).To(lacks)
		Expect(checked(ctx, w.Director).results["rights-prefetch"]).To(are(preflight.Fails, "missing: daemonsets (get, list, create, delete)", "docs/rbac-prefetch.yaml"))
		Expect(w.collect(ctx, director.UUID)).To(Equal([]string{"nothing is left over"}))
	})

	It("is not pulled by what somebody else has made under that name", func(ctx context.Context) {
		w.Director = w.prefetching(ctx, enabled, nil)
		w.must(ctx, "create_stemcell", "image", light)
		theirs := w.pulling(ctx)[0]
		_, err := cluster.AppsV1().DaemonSets(w.namespace).Patch(ctx, theirs.Name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"bosh.cloudfoundry.org/director-uuid":"another"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.fails(ctx, "create_stemcell", "image", light).Message).To(ContainSubstring("that is not this director's"))
		w.must(ctx, "delete_stemcell", stemcellCID)
		Expect(w.pulling(ctx)).To(ConsistOf(HaveField("UID", theirs.UID)))
	})

	It("is a left-over's once the setting is off, which calls then send no request for", func(ctx context.Context) {
		by := w.prefetching(ctx, enabled, nil)
		_, err := by.Call(ctx, "create_stemcell", "image", light)
		Expect(err).NotTo(HaveOccurred())
		name := w.pulling(ctx)[0].Name
		Expect(w.listed(ctx, by.Config)).To(Equal([]string{"nothing is left over"}))

		proxy.Reset(nil)
		w.must(ctx, "delete_stemcell", stemcellCID)
		Expect(proxy.Requests()).To(BeEmpty())
		Expect(w.collect(ctx, director.UUID)).To(ContainElement(And(HavePrefix("DaemonSet "+w.namespace+"/"+name+" ("),
			ContainSubstring(stemcellCID), HaveSuffix("stemcell.prefetch is not enabled any more: would be deleted"))))
		w.collect(ctx, director.UUID, "-confirm")
		Eventually(w.objects).WithContext(ctx).Should(BeEmpty())
	})
})
