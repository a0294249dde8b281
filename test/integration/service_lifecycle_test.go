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

// createVMWithProperties creates a VM with these cloud_properties and this env, on a dynamic network, and returns its CID.
func (env testEnv) createVMWithProperties(ctx context.Context, agent string, properties, agentEnv map[string]any) string {
	GinkgoHelper()
	env.mustCall(ctx, "create_vm", agent, stemcellCID, properties, dynamicNetwork(), []string{}, agentEnv)
	return "agent-" + agent
}

// getService returns the Service, or nil if it does not exist.
func (env testEnv) getService(ctx context.Context, name string) *corev1.Service {
	GinkgoHelper()
	return nilIfNotFound(cluster.CoreV1().Services(env.namespace).Get(ctx, name, metav1.GetOptions{}))
}

// servicesProperties returns cloud_properties with these services.
func servicesProperties(services ...map[string]any) map[string]any {
	return map[string]any{"services": services}
}

// namedService returns the service web with extra properties. VMs can share it.
func namedService(extra map[string]any) map[string]any {
	service := map[string]any{"name": "web", "type": "NodePort", "ports": []any{map[string]any{"port": 80, "target_port": 8080}}}
	maps.Copy(service, extra)
	return service
}

var _ = Describe("A Service", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	It("without a name belongs to its VM, reaches only that VM, and is deleted with it", func(ctx context.Context) {
		vm := env.createVMWithProperties(ctx, "one", servicesProperties(map[string]any{"ports": []any{8443}}, map[string]any{"headless": true}), nil)
		Expect(env.getService(ctx, vm).Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))
		Expect(env.getService(ctx, vm+"-2").Spec.ClusterIP).To(Equal("None"))
		Eventually(env.endpointVMs).WithContext(ctx).WithArguments(vm).Should(ConsistOf(vm))
		env.mustCall(ctx, "delete_vm", vm)
		Eventually(env.getService).WithContext(ctx).WithArguments(vm).Should(BeNil())
		Eventually(env.getService).WithContext(ctx).WithArguments(vm + "-2").Should(BeNil())
	})

	It("with a name is shared by VMs, keeps its addresses when they change, and is deleted with the last one", func(ctx context.Context) {
		env.createVMWithProperties(ctx, "one", servicesProperties(namedService(nil)), nil)
		first := env.getService(ctx, "web")
		env.createVMWithProperties(ctx, "two", servicesProperties(namedService(map[string]any{"ports": []any{443, map[string]any{"port": 80, "target_port": 8081}}})), nil)
		Eventually(env.endpointVMs).WithContext(ctx).WithArguments("web").Should(ConsistOf("agent-one", "agent-two"))
		env.mustCall(ctx, "delete_vm", "agent-one")
		Eventually(env.endpointVMs).WithContext(ctx).WithArguments("web").Should(ConsistOf("agent-two"))
		// The garbage collector of Kubernetes removes the deleted owner.
		Eventually(func() []metav1.OwnerReference { return env.getService(ctx, "web").OwnerReferences }).Should(ConsistOf(HaveField("Name", "agent-two")))

		second := env.getService(ctx, "web")
		Expect(second.UID).To(Equal(first.UID))
		Expect(second.Spec.ClusterIP).To(Equal(first.Spec.ClusterIP))
		Expect(second.Spec.Ports).To(ConsistOf(
			And(HaveField("Port", int32(443))),
			And(HaveField("Port", int32(80)), HaveField("TargetPort.IntVal", int32(8081)), HaveField("NodePort", first.Spec.Ports[0].NodePort))))
		env.mustCall(ctx, "delete_vm", "agent-two")
		Eventually(env.getService).WithContext(ctx).WithArguments("web").Should(BeNil())
	})

	It("sends traffic to the VM of create-env also while its jobs are stopped, because the BOSH CLI reaches the agent through it", func(ctx context.Context) {
		readinessProbe := func(vm, mbus string) *corev1.Probe {
			env.Director = env.directorWithConfig("agent", map[string]any{"mbus": mbus})
			env.createVMWithProperties(ctx, vm, servicesProperties(namedService(nil)), nil)
			pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, "agent-"+vm, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			return pod.Spec.Containers[0].ReadinessProbe
		}
		Expect(readinessProbe("instance", "nats://10.0.0.6:4222")).NotTo(BeNil())
		Expect(readinessProbe("director", "https://mbus:password@0.0.0.0:6868")).To(BeNil())
	})

	It("has the traffic policies of the VM that was created last, with the defaults of Kubernetes", func(ctx context.Context) {
		env.createVMWithProperties(ctx, "one", servicesProperties(namedService(map[string]any{
			"type": "NodePort", "external_traffic_policy": "Local", "session_affinity": "ClientIP", "publish_not_ready_addresses": true,
		})), nil)
		spec := env.getService(ctx, "web").Spec
		Expect(spec.ExternalTrafficPolicy).To(Equal(corev1.ServiceExternalTrafficPolicyLocal))
		Expect(spec.SessionAffinity).To(Equal(corev1.ServiceAffinityClientIP))
		Expect(spec.PublishNotReadyAddresses).To(BeTrue())

		env.createVMWithProperties(ctx, "two", servicesProperties(namedService(map[string]any{"type": "NodePort"})), nil)
		spec = env.getService(ctx, "web").Spec
		Expect(spec.ExternalTrafficPolicy).To(Equal(corev1.ServiceExternalTrafficPolicyCluster))
		Expect(spec.SessionAffinity).To(Equal(corev1.ServiceAffinityNone))
		Expect(spec.PublishNotReadyAddresses).To(BeFalse())

		env.createVMWithProperties(ctx, "three", servicesProperties(namedService(map[string]any{"type": "ClusterIP", "session_affinity": "ClientIP"})), nil)
		Expect(env.getService(ctx, "web").Spec.ExternalTrafficPolicy).To(BeEmpty())
		Expect(env.getService(ctx, "web").Spec.SessionAffinity).To(Equal(corev1.ServiceAffinityClientIP))
	})

	It("with keep remains after its last VM, and the next VM uses it, until a VM without keep makes all its VMs the owners", func(ctx context.Context) {
		properties := servicesProperties(namedService(map[string]any{"keep": true}))
		env.createVMWithProperties(ctx, "one", properties, nil)
		first := env.getService(ctx, "web")
		env.mustCall(ctx, "delete_vm", "agent-one")
		env.createVMWithProperties(ctx, "two", properties, nil)
		Expect(env.getService(ctx, "web").UID).To(Equal(first.UID))
		properties["disk_strategy"], properties["ephemeral_disk"] = "recreate", 64
		env.createVMWithProperties(ctx, "evicted", properties, nil)
		env.deletePodAndWait(ctx, "agent-evicted")
		env.createVMWithProperties(ctx, "three", servicesProperties(namedService(nil)), nil)
		Expect(env.getService(ctx, "web").OwnerReferences).To(ConsistOf(
			HaveField("Name", "agent-two"), HaveField("Name", "agent-evicted"), HaveField("Name", "agent-three")))
	})

	It("that belongs to another user is not changed, and the VM is not created", func(ctx context.Context) {
		_, err := cluster.CoreV1().Services(env.namespace).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		previous := env.getService(ctx, "web")
		failed := env.mustFail(ctx, "create_vm", "one", stemcellCID, servicesProperties(namedService(nil)), dynamicNetwork(), []string{}, map[string]any{})
		Expect(failed.Message).To(ContainSubstring("does not belong to this director"))
		Expect(failed.OkToRetry).To(BeFalse())
		Expect(env.getService(ctx, "web").ResourceVersion).To(Equal(previous.ResourceVersion))
		Eventually(env.listObjects).WithContext(ctx).Should(ConsistOf("Service/web"))
	})

	It("that the API server rejects is named in the error, and no objects remain", func(ctx context.Context) {
		failed := env.mustFail(ctx, "create_vm", "one", stemcellCID, servicesProperties(namedService(map[string]any{"cluster_ip": "192.0.2.1"})), dynamicNetwork(), []string{}, map[string]any{})
		Expect(failed.Type).To(Equal("Bosh::Clouds::VMCreationFailed"))
		Expect(failed.Message).To(And(ContainSubstring("service web"), ContainSubstring("192.0.2.1")))
		Expect(failed.OkToRetry).To(BeFalse())
		Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty())
	})

	It("that is being deleted is recreated after its deletion", func(ctx context.Context) {
		env.createVMWithProperties(ctx, "one", servicesProperties(namedService(nil)), nil)
		first := env.getService(ctx, "web")
		release := env.blockDeletion(ctx, serviceResource, "web")
		Expect(cluster.CoreV1().Services(env.namespace).Delete(ctx, "web", metav1.DeleteOptions{})).To(Succeed())
		proxy.Reset(nil)
		created := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(created)
			env.createVMWithProperties(ctx, "two", servicesProperties(namedService(nil)), nil)
		}()
		Eventually(proxy.Requests).Should(ContainElement("WATCH namespaces/" + env.namespace + "/services"))
		release()
		Eventually(created).WithContext(ctx).Should(BeClosed())
		Expect(env.getService(ctx, "web").UID).NotTo(Equal(first.UID))
	})

	It("of a vip network is changed in place from externalIPs to a load balancer by the next VM", func(ctx context.Context) {
		createVMWithVIP := func(agent string, properties map[string]any) *corev1.Service {
			GinkgoHelper()
			properties["ports"] = []any{443}
			networks := dynamicNetwork()
			networks["public"] = map[string]any{"type": "vip", "ip": "192.0.2.9", "cloud_properties": properties}
			env.mustCall(ctx, "create_vm", agent, stemcellCID, map[string]any{}, networks, []string{}, map[string]any{})
			return env.getService(ctx, "vip-192-0-2-9")
		}
		previous := createVMWithVIP("one", map[string]any{})
		Expect(previous.Spec.ExternalIPs).To(HaveExactElements("192.0.2.9"))
		after := createVMWithVIP("two", map[string]any{"service_type": "LoadBalancer", "annotations": map[string]any{"metallb.io/loadBalancerIPs": "{{index .IPs 0}}"}})
		Expect(after.UID).To(Equal(previous.UID))
		Expect(after.Spec.ClusterIP).To(Equal(previous.Spec.ClusterIP))
		Expect(after.Spec).To(And(HaveField("Type", corev1.ServiceTypeLoadBalancer), HaveField("ExternalIPs", BeEmpty()), HaveField("LoadBalancerIP", BeEmpty())))
		Expect(after.Annotations).To(HaveKeyWithValue("metallb.io/loadBalancerIPs", "192.0.2.9"))
	})

	It("of a vip network moves from one VM to the next", func(ctx context.Context) {
		networks := dynamicNetwork()
		networks["public"] = map[string]any{"type": "vip", "ip": "192.0.2.7", "cloud_properties": map[string]any{"ports": []any{443}}}
		env.mustCall(ctx, "create_vm", "one", stemcellCID, map[string]any{}, networks, []string{}, map[string]any{})
		first := env.getService(ctx, "vip-192-0-2-7")
		Expect(first.Spec.ExternalIPs).To(ConsistOf("192.0.2.7"))
		Eventually(env.endpointVMs).WithContext(ctx).WithArguments("vip-192-0-2-7").Should(ConsistOf("agent-one"))
		env.mustCall(ctx, "create_vm", "two", stemcellCID, map[string]any{}, networks, []string{}, map[string]any{})
		env.mustCall(ctx, "delete_vm", "agent-one")
		Eventually(env.endpointVMs).WithContext(ctx).WithArguments("vip-192-0-2-7").Should(ConsistOf("agent-two"))
		Expect(env.getService(ctx, "vip-192-0-2-7").UID).To(Equal(first.UID))

		networks["public"].(map[string]any)["ip"] = "192.0.2.8"
		networks["public"].(map[string]any)["cloud_properties"] = map[string]any{"ports": []any{443}, "service_type": "LoadBalancer"}
		env.mustCall(ctx, "create_vm", "three", stemcellCID, map[string]any{}, networks, []string{}, map[string]any{})
		Expect(env.getService(ctx, "vip-192-0-2-8").Spec).To(And(HaveField("Type", corev1.ServiceTypeLoadBalancer), HaveField("LoadBalancerIP", "192.0.2.8")))
	})

	It("is correct after a create_vm or delete_vm is killed after any request and retried", Label("faults"), func(ctx context.Context) {
		properties := servicesProperties(namedService(nil), map[string]any{"ports": []any{8443}})
		env.createVMWithProperties(ctx, "first", properties, nil)
		uid := env.getService(ctx, "web").UID
		forEachRequest(6, func(n int) bool {
			agent := fmt.Sprintf("killed-%d", n)
			interrupted := env.interruptCall(ctx, n, "create_vm", agent, stemcellCID, properties, dynamicNetwork(), []string{}, map[string]any{})
			vm := env.createVMWithProperties(ctx, agent, properties, map[string]any{})
			for _, name := range []string{"web", vm} {
				Expect(env.getService(ctx, name).OwnerReferences).To(ContainElement(HaveField("Name", vm)))
			}
			deleteInterrupted := env.interruptCall(ctx, n, "delete_vm", vm)
			env.mustRetry(ctx, "VMNotFound", "delete_vm", vm)
			Eventually(env.getService).WithContext(ctx).WithArguments(vm).Should(BeNil())
			Expect(env.getService(ctx, "web").UID).To(Equal(uid))
			return interrupted || deleteInterrupted
		})
	})
})

// endpointVMs returns the VMs in the EndpointSlices of the Service.
func (env testEnv) endpointVMs(ctx context.Context, service string) []string {
	GinkgoHelper()
	endpointSlices, err := cluster.DiscoveryV1().EndpointSlices(env.namespace).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + service})
	Expect(err).NotTo(HaveOccurred())
	var vms []string
	for _, slice := range endpointSlices.Items {
		for _, endpoint := range slice.Endpoints {
			vms = append(vms, endpoint.TargetRef.Name)
		}
	}
	return vms
}
