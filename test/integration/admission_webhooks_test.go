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

// admissionReview contains the parts of an AdmissionReview (admission.k8s.io/v1) that these webhooks read and write.
type admissionReview struct {
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

// serveWebhook starts an admission webhook that allows all requests, unless review changes the response. The webhook stops after the spec.
func serveWebhook(review func(*admissionReview)) admission.WebhookClientConfig {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		defer GinkgoRecover()
		var content admissionReview
		Expect(json.NewDecoder(request.Body).Decode(&content)).To(Succeed())
		content.Response.UID, content.Response.Allowed = content.Request.UID, true
		review(&content)
		w.Header().Set("Content-Type", "application/json")
		Expect(json.NewEncoder(w).Encode(content)).To(Succeed())
	}))
	DeferCleanup(server.Close)
	return admission.WebhookClientConfig{
		URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
}

// podWebhookRules returns a selector for the namespace, and rules for requests that create or change these resources of Pods.
func (env testEnv) podWebhookRules(resources ...string) (*metav1.LabelSelector, []admission.RuleWithOperations) {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: env.namespace}},
		[]admission.RuleWithOperations{{Operations: []admission.OperationType{admission.Create, admission.Update},
			Rule: admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: resources}}}
}

// denyPods makes a validating webhook deny the creation of matching Pods with this message.
func (env testEnv) denyPods(ctx context.Context, message string, matches func(*corev1.Pod) bool) {
	GinkgoHelper()
	namespace, rules := env.podWebhookRules("pods")
	rules[0].Operations = []admission.OperationType{admission.Create}
	webhooks := cluster.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := webhooks.Create(ctx, &admission.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: env.namespace},
		Webhooks: []admission.ValidatingWebhook{{
			Name: "deny.integration.test", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admission.SideEffectClassNone),
			NamespaceSelector: namespace, Rules: rules,
			ClientConfig: serveWebhook(func(r *admissionReview) {
				if matches(&r.Request.Object) {
					r.Response.Allowed, r.Response.Status = false, &metav1.Status{Message: message}
				}
			}),
		}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Expect(webhooks.Delete(ctx, env.namespace, metav1.DeleteOptions{})).To(Succeed())
	})
}

// mutatePods makes a mutating webhook change the Pods in the namespace, and waits until it takes effect. change must set the label
// changed-by to webhook.
func (env testEnv) mutatePods(ctx context.Context, change func(*corev1.Pod)) {
	GinkgoHelper()
	namespace, rules := env.podWebhookRules("pods", "pods/ephemeralcontainers")
	webhooks := cluster.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := webhooks.Create(ctx, &admission.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: env.namespace},
		Webhooks: []admission.MutatingWebhook{{
			Name: "change.integration.test", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admission.SideEffectClassNone),
			NamespaceSelector: namespace, Rules: rules,
			ClientConfig: serveWebhook(func(r *admissionReview) {
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
		Expect(webhooks.Delete(ctx, env.namespace, metav1.DeleteOptions{})).To(Succeed())
	})
	plain := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "try", Image: "i:1"}}}}
	Eventually(func() (string, error) {
		pod, err := cluster.CoreV1().Pods(env.namespace).Create(ctx, plain, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return pod.Labels["changed-by"], err
	}).WithContext(ctx).Should(Equal("webhook"))
}

// podMutations are typical changes that admission webhooks make to Pods.
var podMutations = map[string]func(*corev1.Pod){
	"inserts a container before the others": func(pod *corev1.Pod) {
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
	"replaces the registry of images": func(pod *corev1.Pod) {
		useMirror := func(image *string) {
			if !strings.HasPrefix(*image, "mirror.example.org/") {
				*image = "mirror.example.org/" + *image
			}
		}
		for i := range pod.Spec.Containers {
			useMirror(&pod.Spec.Containers[i].Image)
		}
		for i := range pod.Spec.EphemeralContainers {
			useMirror(&pod.Spec.EphemeralContainers[i].Image)
		}
	},
}

var _ = Describe("In a cluster with a webhook", func() {
	for suffix, strategy := range diskStrategies {
		for mutation, change := range podMutations {
			It("that "+mutation+", a VM"+suffix+" and its disk can be used, and are not recreated by retried calls", func(ctx context.Context) {
				env := newTestEnv(ctx).withDiskStrategy(strategy)
				env.mutatePods(ctx, func(pod *corev1.Pod) {
					if pod.Labels == nil {
						pod.Labels = map[string]string{}
					}
					pod.Labels["changed-by"] = "webhook"
					change(pod)
				})
				pods := cluster.CoreV1().Pods(env.namespace)
				uid := func(vm string) string {
					pod, err := pods.Get(ctx, vm, metav1.GetOptions{})
					Expect(err).NotTo(HaveOccurred())
					Expect(pod.Labels).To(HaveKeyWithValue("changed-by", "webhook"))
					return string(pod.UID)
				}
				vm := env.createVM(ctx, "one")
				first := uid(vm)
				Expect(env.createVM(ctx, "one")).To(Equal(vm))
				Expect(uid(vm)).To(Equal(first), "a retried create_vm recreated the Pod")

				disk := env.createDisk(ctx)
				env.mustCall(ctx, "attach_disk", vm, disk)
				attached, attachment := uid(vm), uid(disk+"-attachment")
				if suffix == "" {
					Expect(attached).To(Equal(first))
				}
				env.mustCall(ctx, "attach_disk", vm, disk)
				Expect(string(env.mustCall(ctx, "get_disks", vm).Result)).To(MatchJSON(`["` + disk + `"]`))
				Expect([]string{uid(vm), uid(disk + "-attachment")}).To(Equal([]string{attached, attachment}))
				env.mustCall(ctx, "detach_disk", vm, disk)
				Expect(string(env.mustCall(ctx, "get_disks", vm).Result)).To(MatchJSON(`[]`))
				env.mustCall(ctx, "delete_vm", vm)
				env.mustCall(ctx, "delete_disk", disk)
				Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty())
			})
		}
	}

	It("that adds node affinities, a VM with disk_strategy: recreate that waits for a node is not recreated", func(ctx context.Context) {
		env := newTestEnv(ctx).withDiskStrategy(diskStrategies[recreateStrategy])
		vm := env.createVM(ctx, "one")
		env.mutatePods(ctx, func(pod *corev1.Pod) {
			if pod.Labels == nil {
				pod.Labels = map[string]string{}
			}
			pod.Labels["changed-by"] = "webhook"
			podMutations["adds labels, tolerations, node affinities and limits"](pod)
		})
		pods, templates := cluster.CoreV1().Pods(env.namespace), cluster.CoreV1().PodTemplates(env.namespace)
		_, err := templates.Patch(ctx, vm, types.MergePatchType, []byte(`{"template":{"spec":{"schedulingGates":[{"name":"test/gate"}]}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pods.Delete(ctx, vm, metav1.DeleteOptions{})).To(Succeed())
		Eventually(env.listObjects).WithContext(ctx).ShouldNot(ContainElement("Pod/" + vm))
		env.mustCall(ctx, "has_vm", vm) // recreates the deleted Pod
		gated, err := pods.Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(gated.Spec.NodeName).To(BeEmpty())
		response, err := env.directorWithTimeouts(map[string]any{"attach_disk": waitTimeout}).Call(ctx, "attach_disk", vm, env.createDisk(ctx))
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).NotTo(BeNil())
		again, err := pods.Get(ctx, vm, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(again.UID).To(Equal(gated.UID))
	})

	It("that denies attachment Pods, attach_disk fails at once with the message of the webhook", func(ctx context.Context) {
		env, vm, disk := newTestEnvWithDisk(ctx)
		env.denyPods(ctx, "the host network is not allowed", func(pod *corev1.Pod) bool { return pod.Spec.HostNetwork })
		hostNetworkPod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"}, Spec: corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "try", Image: "i:1"}}}}
		Eventually(func() error {
			_, err := cluster.CoreV1().Pods(env.namespace).Create(ctx, hostNetworkPod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}).WithContext(ctx).Should(MatchError(ContainSubstring("the host network is not allowed")))
		proxy.Reset(nil)
		failed := env.mustFail(ctx, "attach_disk", vm, disk)
		Expect(failed.Message).To(SatisfyAll(ContainSubstring("deny.integration.test"), ContainSubstring("the host network is not allowed")))
		Expect(countCreateRequests("pods")).To(Equal(1))
		Expect(env.listObjects(ctx)).NotTo(ContainElement(HavePrefix("Pod/disk-")))
	})
})

var _ = Describe("Service mesh injectors", func() {
	// injectionSettings returns the labels and annotations of the Pod that injectors read.
	injectionSettings := func(ctx context.Context, env testEnv, pod string) []string {
		found, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, pod, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return []string{found.Labels["sidecar.istio.io/inject"], found.Annotations["sidecar.istio.io/inject"], found.Annotations["linkerd.io/inject"]}
	}
	It("are disabled for VM Pods and attachment Pods", func(ctx context.Context) {
		for _, strategy := range diskStrategies {
			env := newTestEnv(ctx).withDiskStrategy(strategy)
			vm, disk := env.createVM(ctx, "one"), env.createDisk(ctx)
			env.mustCall(ctx, "attach_disk", vm, disk)
			Expect(injectionSettings(ctx, env, vm)).To(HaveExactElements("false", "false", "disabled"))
			Expect(injectionSettings(ctx, env, disk+"-attachment")).To(HaveExactElements("false", "false", "disabled"))
		}
	})

	It("are enabled for a VM with a label for that in its cloud_properties", func(ctx context.Context) {
		env := newTestEnv(ctx)
		env.mustCall(ctx, "create_vm", "one", stemcellCID, map[string]any{"labels": map[string]any{"sidecar.istio.io/inject": "true"}},
			dynamicNetwork(), []string{}, map[string]any{})
		Expect(injectionSettings(ctx, env, "agent-one")).To(HaveExactElements("true", "", "disabled"))
	})

	It("are not disabled if the configuration removes the labels and annotations", func(ctx context.Context) {
		env := newTestEnv(ctx)
		env.Director = env.directorWithConfig("pods", map[string]any{"labels": map[string]any{}, "annotations": map[string]any{}})
		vm := env.createVM(ctx, "one")
		Expect(injectionSettings(ctx, env, vm)).To(HaveExactElements("", "", ""))
	})
})
