package integration

import (
	"context"
	"fmt"
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// create makes a machine of the world with these cloud_properties and env, on a dynamic network.
func (w world) create(ctx context.Context, agent string, properties, env map[string]any) string {
	GinkgoHelper()
	w.must(ctx, "create_vm", agent, stemcellCID, properties, onDynamic(), []string{}, env)
	return "agent-" + agent
}

// service returns the Service, or nil when there is none.
func (w world) service(ctx context.Context, name string) *corev1.Service {
	GinkgoHelper()
	return orNil(cluster.CoreV1().Services(w.namespace).Get(ctx, name, metav1.GetOptions{}))
}

func behind(services ...map[string]any) map[string]any { return map[string]any{"services": services} }

func fixed(more map[string]any) map[string]any {
	service := map[string]any{"name": "web", "type": "NodePort", "ports": []any{map[string]any{"port": 80, "target_port": 8080}}}
	maps.Copy(service, more)
	return service
}

var _ = Describe("A Service", Label("each-version"), func() {
	var w world
	BeforeEach(func(ctx context.Context) { w = newWorld(ctx) })

	It("without a name is its machine's own, reaches it, and goes with it", func(ctx context.Context) {
		vm := w.create(ctx, "one", behind(map[string]any{"ports": []any{8443}}, map[string]any{"headless": true}), nil)
		Expect(w.service(ctx, vm).Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))
		Expect(w.service(ctx, vm+"-2").Spec.ClusterIP).To(Equal("None"))
		Eventually(w.endpoints).WithContext(ctx).WithArguments(vm).Should(ConsistOf(vm))
		w.must(ctx, "delete_vm", vm)
		Eventually(w.service).WithContext(ctx).WithArguments(vm).Should(BeNil())
		Eventually(w.service).WithContext(ctx).WithArguments(vm + "-2").Should(BeNil())
	})

	It("with a name is shared, keeps its addresses from machine to machine, and goes with the last", func(ctx context.Context) {
		w.create(ctx, "one", behind(fixed(nil)), nil)
		first := w.service(ctx, "web")
		w.create(ctx, "two", behind(fixed(map[string]any{"ports": []any{443, map[string]any{"port": 80, "target_port": 8081}}})), nil)
		Eventually(w.endpoints).WithContext(ctx).WithArguments("web").Should(ConsistOf("agent-one", "agent-two"))
		w.must(ctx, "delete_vm", "agent-one")
		Eventually(w.endpoints).WithContext(ctx).WithArguments("web").Should(ConsistOf("agent-two"))
		// The garbage collector has seen that one of two owners is gone.
		Eventually(func() []metav1.OwnerReference { return w.service(ctx, "web").OwnerReferences }).Should(ConsistOf(HaveField("Name", "agent-two")))

		second := w.service(ctx, "web")
		Expect(second.UID).To(Equal(first.UID))
		Expect(second.Spec.ClusterIP).To(Equal(first.Spec.ClusterIP))
		Expect(second.Spec.Ports).To(ConsistOf(
			And(HaveField("Port", int32(443))),
			And(HaveField("Port", int32(80)), HaveField("TargetPort.IntVal", int32(8081)), HaveField("NodePort", first.Spec.Ports[0].NodePort))))
		w.must(ctx, "delete_vm", "agent-two")
		Eventually(w.service).WithContext(ctx).WithArguments("web").Should(BeNil())
	})

	It("sends traffic as its last machine says, and as Kubernetes does by default where that says nothing", func(ctx context.Context) {
		w.create(ctx, "one", behind(fixed(map[string]any{
			"type": "NodePort", "external_traffic_policy": "Local", "session_affinity": "ClientIP", "publish_not_ready_addresses": true,
		})), nil)
		spec := w.service(ctx, "web").Spec
		Expect(spec.ExternalTrafficPolicy).To(Equal(corev1.ServiceExternalTrafficPolicyLocal))
		Expect(spec.SessionAffinity).To(Equal(corev1.ServiceAffinityClientIP))
		Expect(spec.PublishNotReadyAddresses).To(BeTrue())

		w.create(ctx, "two", behind(fixed(map[string]any{"type": "NodePort"})), nil)
		spec = w.service(ctx, "web").Spec
		Expect(spec.ExternalTrafficPolicy).To(Equal(corev1.ServiceExternalTrafficPolicyCluster))
		Expect(spec.SessionAffinity).To(Equal(corev1.ServiceAffinityNone))
		Expect(spec.PublishNotReadyAddresses).To(BeFalse())

		w.create(ctx, "three", behind(fixed(map[string]any{"type": "ClusterIP", "session_affinity": "ClientIP"})), nil)
		Expect(w.service(ctx, "web").Spec.ExternalTrafficPolicy).To(BeEmpty())
		Expect(w.service(ctx, "web").Spec.SessionAffinity).To(Equal(corev1.ServiceAffinityClientIP))
	})

	It("that is kept outlives its last machine, and the next one finds it", func(ctx context.Context) {
		keep := behind(fixed(map[string]any{"keep": true}))
		w.create(ctx, "one", keep, nil)
		first := w.service(ctx, "web")
		w.must(ctx, "delete_vm", "agent-one")
		w.create(ctx, "two", keep, nil)
		Expect(w.service(ctx, "web").UID).To(Equal(first.UID))
		w.create(ctx, "three", behind(fixed(nil)), nil)
		Expect(w.service(ctx, "web").OwnerReferences).To(ConsistOf(HaveField("Name", "agent-three")))
	})

	It("of someone else is left as it is, and the machine is not made", func(ctx context.Context) {
		_, err := cluster.CoreV1().Services(w.namespace).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		before := w.service(ctx, "web")
		failed := w.fails(ctx, "create_vm", "one", stemcellCID, behind(fixed(nil)), onDynamic(), []string{}, map[string]any{})
		Expect(failed.Message).To(ContainSubstring("not this director's"))
		Expect(failed.OkToRetry).To(BeFalse())
		Expect(w.service(ctx, "web").ResourceVersion).To(Equal(before.ResourceVersion))
		Eventually(w.objects).WithContext(ctx).Should(ConsistOf("Service/web"))
	})

	It("that the API server refuses is named in the error, and nothing is left", func(ctx context.Context) {
		failed := w.fails(ctx, "create_vm", "one", stemcellCID, behind(fixed(map[string]any{"cluster_ip": "192.0.2.1"})), onDynamic(), []string{}, map[string]any{})
		Expect(failed.Type).To(Equal("Bosh::Clouds::VMCreationFailed"))
		Expect(failed.Message).To(And(ContainSubstring("service web"), ContainSubstring("192.0.2.1")))
		Expect(failed.OkToRetry).To(BeFalse())
		Eventually(w.objects).WithContext(ctx).Should(BeEmpty())
	})

	It("that is on its way out is waited for and made anew", func(ctx context.Context) {
		w.create(ctx, "one", behind(fixed(nil)), nil)
		first := w.service(ctx, "web")
		release := w.keep(ctx, services, "web")
		Expect(cluster.CoreV1().Services(w.namespace).Delete(ctx, "web", metav1.DeleteOptions{})).To(Succeed())
		proxy.Reset(nil)
		created := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(created)
			w.create(ctx, "two", behind(fixed(nil)), nil)
		}()
		Eventually(proxy.Requests).Should(ContainElement("WATCH namespaces/" + w.namespace + "/services"))
		release()
		Eventually(created).WithContext(ctx).Should(BeClosed())
		Expect(w.service(ctx, "web").UID).NotTo(Equal(first.UID))
	})

	It("of a vip network with externalIPs becomes a load balancer's, in place, with the next machine", func(ctx context.Context) {
		vip := func(agent string, properties map[string]any) *corev1.Service {
			GinkgoHelper()
			properties["ports"] = []any{443}
			networks := onDynamic()
			networks["public"] = map[string]any{"type": "vip", "ip": "192.0.2.9", "cloud_properties": properties}
			w.must(ctx, "create_vm", agent, stemcellCID, map[string]any{}, networks, []string{}, map[string]any{})
			return w.service(ctx, "vip-192-0-2-9")
		}
		before := vip("one", map[string]any{})
		Expect(before.Spec.ExternalIPs).To(HaveExactElements("192.0.2.9"))
		after := vip("two", map[string]any{"service_type": "LoadBalancer", "annotations": map[string]any{"metallb.io/loadBalancerIPs": "{{index .IPs 0}}"}})
		Expect(after.UID).To(Equal(before.UID))
		Expect(after.Spec.ClusterIP).To(Equal(before.Spec.ClusterIP))
		Expect(after.Spec).To(And(HaveField("Type", corev1.ServiceTypeLoadBalancer), HaveField("ExternalIPs", BeEmpty()), HaveField("LoadBalancerIP", BeEmpty())))
		Expect(after.Annotations).To(HaveKeyWithValue("metallb.io/loadBalancerIPs", "192.0.2.9"))
	})

	It("of a vip network follows from one machine to the next", func(ctx context.Context) {
		networks := onDynamic()
		networks["public"] = map[string]any{"type": "vip", "ip": "192.0.2.7", "cloud_properties": map[string]any{"ports": []any{443}}}
		w.must(ctx, "create_vm", "one", stemcellCID, map[string]any{}, networks, []string{}, map[string]any{})
		first := w.service(ctx, "vip-192-0-2-7")
		Expect(first.Spec.ExternalIPs).To(ConsistOf("192.0.2.7"))
		Eventually(w.endpoints).WithContext(ctx).WithArguments("vip-192-0-2-7").Should(ConsistOf("agent-one"))
		w.must(ctx, "create_vm", "two", stemcellCID, map[string]any{}, networks, []string{}, map[string]any{})
		w.must(ctx, "delete_vm", "agent-one")
		Eventually(w.endpoints).WithContext(ctx).WithArguments("vip-192-0-2-7").Should(ConsistOf("agent-two"))
		Expect(w.service(ctx, "vip-192-0-2-7").UID).To(Equal(first.UID))

		networks["public"].(map[string]any)["ip"] = "192.0.2.8"
		networks["public"].(map[string]any)["cloud_properties"] = map[string]any{"ports": []any{443}, "service_type": "LoadBalancer"}
		w.must(ctx, "create_vm", "three", stemcellCID, map[string]any{}, networks, []string{}, map[string]any{})
		Expect(w.service(ctx, "vip-192-0-2-8").Spec).To(And(HaveField("Type", corev1.ServiceTypeLoadBalancer), HaveField("LoadBalancerIP", "192.0.2.8")))
	})

	It("is right after create_vm or delete_vm was killed after any request and repeated", func(ctx context.Context) {
		properties := behind(fixed(nil), map[string]any{"ports": []any{8443}})
		w.create(ctx, "first", properties, nil)
		uid := w.service(ctx, "web").UID
		eachRequest(6, func(n int) bool {
			agent := fmt.Sprintf("killed-%d", n)
			cut := w.killed(ctx, n, "create_vm", agent, stemcellCID, properties, onDynamic(), []string{}, map[string]any{})
			vm := w.create(ctx, agent, properties, map[string]any{})
			for _, name := range []string{"web", vm} {
				Expect(w.service(ctx, name).OwnerReferences).To(ContainElement(HaveField("Name", vm)))
			}
			cutToo := w.killed(ctx, n, "delete_vm", vm)
			w.repeats(ctx, "VMNotFound", "delete_vm", vm)
			Eventually(w.service).WithContext(ctx).WithArguments(vm).Should(BeNil())
			Expect(w.service(ctx, "web").UID).To(Equal(uid))
			return cut || cutToo
		})
	})
})

// endpoints returns which machines the Service reaches.
func (w world) endpoints(ctx context.Context, service string) []string {
	GinkgoHelper()
	slices, err := cluster.DiscoveryV1().EndpointSlices(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + service})
	Expect(err).NotTo(HaveOccurred())
	var machines []string
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			machines = append(machines, endpoint.TargetRef.Name)
		}
	}
	return machines
}
