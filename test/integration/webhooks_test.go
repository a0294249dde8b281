package integration

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// review is the part of an AdmissionReview (admission.k8s.io/v1) that these webhooks read and write.
type review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Request    struct {
		UID    string     `json:"uid"`
		Object corev1.Pod `json:"object"`
	} `json:"request"`
	Response struct {
		UID       string         `json:"uid"`
		Allowed   bool           `json:"allowed"`
		Status    *metav1.Status `json:"status,omitempty"`
		PatchType string         `json:"patchType,omitempty"`
		Patch     []byte         `json:"patch,omitempty"`
	} `json:"response"`
}

// serveWebhook answers the API server's reviews until the spec ends.
func serveWebhook(answer func(*review)) admission.WebhookClientConfig {
	server := httptest.NewTLSServer(http.HandlerFunc(func(to http.ResponseWriter, request *http.Request) {
		defer GinkgoRecover()
		var asked review
		Expect(json.NewDecoder(request.Body).Decode(&asked)).To(Succeed())
		asked.Response.UID, asked.Response.Allowed = asked.Request.UID, true
		answer(&asked)
		to.Header().Set("Content-Type", "application/json")
		Expect(json.NewEncoder(to).Encode(asked)).To(Succeed())
	}))
	DeferCleanup(server.Close)
	return admission.WebhookClientConfig{
		URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
}

// podsOf selects what is done to Pods of the world's namespace.
func (w world) podsOf(resources ...string) (*metav1.LabelSelector, []admission.RuleWithOperations) {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}},
		[]admission.RuleWithOperations{{Operations: []admission.OperationType{admission.Create, admission.Update},
			Rule: admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: resources}}}
}

// deniesPods lets a validating webhook deny these Pods with these words.
func (w world) deniesPods(ctx context.Context, words string, which func(*corev1.Pod) bool) {
	GinkgoHelper()
	namespace, rules := w.podsOf("pods")
	rules[0].Operations = []admission.OperationType{admission.Create}
	webhooks := cluster.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := webhooks.Create(ctx, &admission.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Webhooks: []admission.ValidatingWebhook{{
			Name: "deny.integration.test", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admission.SideEffectClassNone),
			NamespaceSelector: namespace, Rules: rules,
			ClientConfig: serveWebhook(func(r *review) {
				if which(&r.Request.Object) {
					r.Response.Allowed, r.Response.Status = false, &metav1.Status{Message: words}
				}
			}),
		}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Expect(webhooks.Delete(ctx, w.namespace, metav1.DeleteOptions{})).To(Succeed())
	})
}

// changesPods lets a mutating webhook change the namespace's Pods, and waits until it does so.
func (w world) changesPods(ctx context.Context, change func(*corev1.Pod)) {
	GinkgoHelper()
	namespace, rules := w.podsOf("pods", "pods/ephemeralcontainers")
	webhooks := cluster.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := webhooks.Create(ctx, &admission.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Webhooks: []admission.MutatingWebhook{{
			Name: "change.integration.test", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admission.SideEffectClassNone),
			NamespaceSelector: namespace, Rules: rules,
			ClientConfig: serveWebhook(func(r *review) {
				change(&r.Request.Object)
				pod := r.Request.Object
				patch, err := json.Marshal([]map[string]any{
					{"op": "add", "path": "/metadata/labels", "value": pod.Labels}, {"op": "replace", "path": "/spec", "value": pod.Spec},
				})
				Expect(err).NotTo(HaveOccurred())
				r.Response.Patch, r.Response.PatchType = patch, "JSONPatch"
			}),
		}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Expect(webhooks.Delete(ctx, w.namespace, metav1.DeleteOptions{})).To(Succeed())
	})
	plain := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "try", Image: "i:1"}}}}
	Eventually(func() (string, error) {
		pod, err := cluster.CoreV1().Pods(w.namespace).Create(ctx, plain, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return pod.Labels["changed-by"], err
	}).WithContext(ctx).Should(Equal("webhook"))
}

// changes are what webhooks of real clusters do to Pods when they are made; each says that it was there.
var changes = map[string]func(*corev1.Pod){
	"puts a container before the others": func(pod *corev1.Pod) {
		if pod.UID == "" {
			pod.Spec.Containers = slices.Insert(pod.Spec.Containers, 0, corev1.Container{Name: "a-proxy", Image: "proxy:1"})
		}
	},
	"adds labels, tolerations, node affinities and limits": func(pod *corev1.Pod) {
		if pod.UID != "" {
			return
		}
		pod.Labels["team"] = "bosh"
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: "reserved", Operator: corev1.TolerationOpExists})
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		}
		if pod.Spec.Affinity == nil {
			pod.Spec.Affinity = &corev1.Affinity{}
		}
		if pod.Spec.Affinity.NodeAffinity == nil {
			pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
		}
		node := pod.Spec.Affinity.NodeAffinity
		node.PreferredDuringSchedulingIgnoredDuringExecution = append(node.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "cheap", Operator: corev1.NodeSelectorOpExists}}}})
	},
	"takes images from elsewhere": func(pod *corev1.Pod) {
		elsewhere := func(image *string) {
			if !strings.HasPrefix(*image, "mirror.example.org/") {
				*image = "mirror.example.org/" + *image
			}
		}
		for i := range pod.Spec.Containers {
			elsewhere(&pod.Spec.Containers[i].Image)
		}
		for i := range pod.Spec.EphemeralContainers {
			elsewhere(&pod.Spec.EphemeralContainers[i].Image)
		}
	},
}

var _ = Describe("In a cluster with a webhook", func() {
	for suffix, kind := range kinds {
		for what, change := range changes {
			It("that "+what+", a machine"+suffix+" lives, and is not made again", func(ctx context.Context) {
				w := newWorld(ctx).of(kind)
				w.changesPods(ctx, func(pod *corev1.Pod) {
					if pod.Labels == nil {
						pod.Labels = map[string]string{}
					}
					pod.Labels["changed-by"] = "webhook"
					change(pod)
				})
				pods := cluster.CoreV1().Pods(w.namespace)
				uid := func(vm string) string {
					pod, err := pods.Get(ctx, vm, metav1.GetOptions{})
					Expect(err).NotTo(HaveOccurred())
					Expect(pod.Labels).To(HaveKeyWithValue("changed-by", "webhook"))
					return string(pod.UID)
				}
				vm := w.createVM(ctx, "one")
				first := uid(vm)
				Expect(w.createVM(ctx, "one")).To(Equal(vm))
				Expect(uid(vm)).To(Equal(first), "the same create_vm made it again")

				disk := w.createDisk(ctx)
				w.must(ctx, "attach_disk", vm, disk)
				attached, attachment := uid(vm), uid(disk+"-attachment")
				if suffix == "" {
					Expect(attached).To(Equal(first))
				}
				w.must(ctx, "attach_disk", vm, disk)
				Expect(string(w.must(ctx, "get_disks", vm).Result)).To(MatchJSON(`["` + disk + `"]`))
				Expect([]string{uid(vm), uid(disk + "-attachment")}).To(Equal([]string{attached, attachment}))
				w.must(ctx, "detach_disk", vm, disk)
				Expect(string(w.must(ctx, "get_disks", vm).Result)).To(MatchJSON(`[]`))
				w.must(ctx, "delete_vm", vm)
				w.must(ctx, "delete_disk", disk)
				Eventually(w.objects).WithContext(ctx).Should(BeEmpty())
			})
		}
	}

	It("that adds to its node affinity, a recreated machine that waits for a node is not made again", func(ctx context.Context) {
		w := newWorld(ctx).of(kinds[" with disk_strategy: recreate"])
		vm := w.createVM(ctx, "one")
		w.changesPods(ctx, func(pod *corev1.Pod) {
			if pod.Labels == nil {
				pod.Labels = map[string]string{}
			}
			pod.Labels["changed-by"] = "webhook"
			changes["adds labels, tolerations, node affinities and limits"](pod)
		})
		pods, templates := cluster.CoreV1().Pods(w.namespace), cluster.CoreV1().PodTemplates(w.namespace)
		_, err := templates.Patch(ctx, vm, types.MergePatchType, []byte(`{"template":{"spec":{"schedulingGates":[{"name":"test/gate"}]}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pods.Delete(ctx, vm, metav1.DeleteOptions{})).To(Succeed())
		Eventually(w.objects).WithContext(ctx).ShouldNot(ContainElement("Pod/" + vm))
		w.must(ctx, "has_vm", vm) // makes the Pod that is missing
		waits, err := pods.Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(waits.Spec.NodeName).To(BeEmpty())
		response, err := w.withTimeouts(map[string]any{"attach_disk": "2s"}).Call(ctx, "attach_disk", vm, w.createDisk(ctx))
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).NotTo(BeNil())
		again, err := pods.Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(again.UID).To(Equal(waits.UID))
	})

	It("that denies helpers, attach_disk answers its words at once", func(ctx context.Context) {
		w, vm, disk := newWorldWithDisk(ctx)
		w.deniesPods(ctx, "no node's network here", func(pod *corev1.Pod) bool { return pod.Spec.HostNetwork })
		node := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"}, Spec: corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "try", Image: "i:1"}}}}
		Eventually(func() error {
			_, err := cluster.CoreV1().Pods(w.namespace).Create(ctx, node, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}).WithContext(ctx).Should(MatchError(ContainSubstring("no node's network here")))
		proxy.Reset(nil)
		failed := w.fails(ctx, "attach_disk", vm, disk)
		Expect(failed.Message).To(SatisfyAll(ContainSubstring("deny.integration.test"), ContainSubstring("no node's network here")))
		Expect(tries("pods")).To(Equal(1))
		Expect(w.objects(ctx)).NotTo(ContainElement(HavePrefix("Pod/disk-")))
	})
})

var _ = Describe("Injectors of proxies", func() {
	marks := func(ctx context.Context, w world, pod string) []string {
		found, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, pod, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return []string{found.Labels["sidecar.istio.io/inject"], found.Annotations["sidecar.istio.io/inject"], found.Annotations["linkerd.io/inject"]}
	}
	It("are asked to stay away from machines, and from what attaches disks to them", func(ctx context.Context) {
		for _, kind := range kinds {
			w := newWorld(ctx).of(kind)
			vm, disk := w.createVM(ctx, "one"), w.createDisk(ctx)
			w.must(ctx, "attach_disk", vm, disk)
			Expect(marks(ctx, w, vm)).To(HaveExactElements("false", "false", "disabled"))
			Expect(marks(ctx, w, disk+"-attachment")).To(HaveExactElements("false", "false", "disabled"))
		}
	})

	It("are asked nothing about a machine whose cloud_properties say what they are to do", func(ctx context.Context) {
		w := newWorld(ctx)
		w.must(ctx, "create_vm", "one", stemcellCID, map[string]any{"labels": map[string]any{"sidecar.istio.io/inject": "true"}},
			onDynamic(), []string{}, map[string]any{})
		Expect(marks(ctx, w, "agent-one")).To(HaveExactElements("true", "", "disabled"))
	})

	It("are asked nothing where the configuration says so", func(ctx context.Context) {
		w := newWorld(ctx)
		w.Director = w.with("pods", map[string]any{"labels": map[string]any{}, "annotations": map[string]any{}})
		vm := w.createVM(ctx, "one")
		Expect(marks(ctx, w, vm)).To(HaveExactElements("", "", ""))
	})
})
