package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/director"
)

var _ = Describe("The address of a VM", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	getPod := func(ctx context.Context, name string) *corev1.Pod {
		GinkgoHelper()
		pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return pod
	}

	It("on a dynamic network becomes the requested address of its Pod", func(ctx context.Context) {
		vm := getPod(ctx, env.createVM(ctx, "one"))
		Expect(vm.Annotations).To(HaveKeyWithValue("cni.projectcalico.org/ipAddrs", `["`+vm.Status.PodIP+`"]`))
		Expect(vm.Annotations).To(HaveKeyWithValue("bosh.cloudfoundry.org/ip-address", vm.Status.PodIP))
		env.createVM(ctx, "one")
		adopted := getPod(ctx, vm.Name)
		for _, existing := range []*corev1.Pod{vm, adopted} {
			delete(existing.Annotations, callAnnotation) // the retried call adopted the Pod
		}
		Expect(adopted.Annotations).To(Equal(vm.Annotations), "after a retried create_vm")
		env.mustCall(ctx, "set_vm_metadata", vm.Name, map[string]any{"ip-address": "a tag of the operator"})
		Expect(getPod(ctx, vm.Name).Annotations).To(HaveKeyWithValue("bosh.cloudfoundry.org/ip-address", vm.Status.PodIP))
	})

	It("on a dynamic network is not requested if that is disabled, or if cloud_properties have the annotation", func(ctx context.Context) {
		annotated := map[string]any{"annotations": map[string]any{"cni.projectcalico.org/ipAddrs": `["10.9.8.5"]`}}
		env.mustCall(ctx, "create_vm", "annotated", stemcellCID, annotated, dynamicNetwork(), []string{}, map[string]any{})
		Expect(getPod(ctx, "agent-annotated").Annotations).To(HaveKeyWithValue("cni.projectcalico.org/ipAddrs", `["10.9.8.5"]`))

		env.Director = env.directorWithConfig("network", map[string]any{"keep_dynamic_addresses": false})
		env.createVM(ctx, "one")
		Expect(getPod(ctx, "agent-one").Annotations).NotTo(HaveKey("cni.projectcalico.org/ipAddrs"))
	})

	It("that differs from the address in its manual network is an error that quotes Events, and no objects remain", func(ctx context.Context) {
		properties := map[string]any{"annotations": map[string]any{"test/address": "10.66.0.6", "test/hold": "until the Event exists"}}
		responses := make(chan director.Response, 1)
		go func() {
			defer GinkgoRecover()
			response, err := env.Call(ctx, "create_vm", "one", stemcellCID, properties, manualNetwork("10.9.8.7"), []string{}, map[string]any{})
			Expect(err).NotTo(HaveOccurred())
			responses <- response
		}()
		var vm *corev1.Pod
		Eventually(func() (err error) {
			vm, err = cluster.CoreV1().Pods(env.namespace).Get(ctx, "agent-one", metav1.GetOptions{})
			return err
		}).WithContext(ctx).Should(Succeed())
		_, err := cluster.CoreV1().Events(env.namespace).Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "no-such-pool"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: env.namespace, Name: vm.Name, UID: vm.UID},
			Type:           corev1.EventTypeWarning, Reason: "NoSuchPool", Message: "10.9.8.7 is in no pool", LastTimestamp: metav1.Now(),
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(env.annotatePod(ctx, vm.Name, "test/hold", nil)).To(Succeed())

		var response director.Response
		Eventually(responses).WithContext(ctx).Should(Receive(&response))
		Expect(response.Error).NotTo(BeNil())
		Expect(response.Error.Type).To(Equal("Bosh::Clouds::VMCreationFailed"))
		Expect(response.Error.Message).To(ContainSubstring("network default requests 10.9.8.7, but the Pod has 10.66.0.6"))
		Expect(response.Error.Message).To(ContainSubstring("NoSuchPool: 10.9.8.7 is in no pool"))
		Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty())
	})

	It("that the Pod does not get in time is named in the error, and no objects remain", func(ctx context.Context) {
		properties := map[string]any{"annotations": map[string]any{"test/hold": "forever"}}
		shortTimeout := env.directorWithTimeouts(map[string]any{"create_vm": waitTimeout})
		response, err := shortTimeout.Call(ctx, "create_vm", "one", stemcellCID, properties, manualNetwork("10.9.8.7"), []string{}, map[string]any{})
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).NotTo(BeNil())
		Expect(response.Error.Type).To(Equal("Bosh::Clouds::VMCreationFailed"))
		Expect(response.Error.OkToRetry).To(BeTrue())
		Expect(response.Error.Message).To(ContainSubstring("the Pod requested 10.9.8.7 (network default), but got no address"))
		Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty())
	})

	It("cannot be a range", func(ctx context.Context) {
		network := manualNetwork("10.9.8.16")
		network["default"].(map[string]any)["prefix"] = "28"
		failed := env.mustFail(ctx, "create_vm", "one", stemcellCID, map[string]any{}, network, []string{}, map[string]any{})
		Expect(failed.Type).To(Equal("Bosh::Clouds::NotSupported"))
		Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty())
	})

	It("on a network attachment is accepted only if Multus reports it, and no objects remain otherwise", func(ctx context.Context) {
		networks := dynamicNetwork()
		networks["storage"] = map[string]any{"type": "manual", "ip": "10.9.8.7", "netmask": "255.255.255.0", "cloud_properties": map[string]any{"network_attachment": "storage"}}
		failed := env.mustFail(ctx, "create_vm", "one", stemcellCID, map[string]any{}, networks, []string{}, map[string]any{})
		Expect(failed.Message).To(ContainSubstring("check that Multus is installed"))
		Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty())

		reported := map[string]any{"annotations": map[string]any{"k8s.v1.cni.cncf.io/network-status": `[{"name":"` + env.namespace + `/storage","ips":["10.9.8.7"]}]`}}
		env.mustCall(ctx, "create_vm", "two", stemcellCID, reported, networks, []string{}, map[string]any{})
		Expect(getPod(ctx, "agent-two").Annotations["k8s.v1.cni.cncf.io/networks"]).To(MatchJSON(`[{"name":"storage","ips":["10.9.8.7/24"]}]`))
	})

	It("on a network attachment that does not exist makes create_vm fail early, and no objects remain", func(ctx context.Context) {
		networks := dynamicNetwork()
		networks["storage"] = map[string]any{"type": "dynamic", "cloud_properties": map[string]any{"network_attachment": "infra/storage"}}
		properties := map[string]any{"annotations": map[string]any{"test/hold": "because Multus fails"}}
		responses := make(chan director.Response, 1)
		go func() {
			defer GinkgoRecover()
			response, err := env.Call(ctx, "create_vm", "one", stemcellCID, properties, networks, []string{}, map[string]any{})
			Expect(err).NotTo(HaveOccurred())
			responses <- response
		}()
		Eventually(proxy.Requests).WithContext(ctx).Should(ContainElement(And(HavePrefix("GET"), ContainSubstring("/events"))))
		vm := getPod(ctx, "agent-one")
		// Multus reports an Event at each try of the kubelet.
		Eventually(func() (response director.Response, err error) {
			_, err = cluster.CoreV1().Events(env.namespace).Create(ctx, &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{GenerateName: "try-"},
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: env.namespace, Name: vm.Name, UID: vm.UID},
				Type:           corev1.EventTypeWarning, Reason: "NoNetworkFound", LastTimestamp: metav1.Now(),
				Message: "cannot find a network-attachment-definition (storage) in namespace (infra): " +
					`network-attachment-definitions.k8s.cni.cncf.io "storage" not found`,
			}, metav1.CreateOptions{})
			select {
			case response = <-responses:
			default:
			}
			return response, err
		}).WithContext(ctx).Should(HaveField("Error", And(
			HaveField("Type", "Bosh::Clouds::VMCreationFailed"),
			HaveField("OkToRetry", BeFalse()),
			HaveField("Message", ContainSubstring("VM agent-one did not start: NetworkAttachmentDefinition infra/storage not found: "+
				`network-attachment-definitions.k8s.cni.cncf.io "storage" not found`)),
		)))
		Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty())
	})
})
