package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/director"
)

var _ = Describe("The address of a machine", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	pod := func(ctx context.Context, name string) *corev1.Pod {
		GinkgoHelper()
		pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return pod
	}

	It("on a dynamic network is what its Pod asks for from then on", func(ctx context.Context) {
		vm := pod(ctx, env.createVM(ctx, "one"))
		Expect(vm.Annotations).To(HaveKeyWithValue("cni.projectcalico.org/ipAddrs", `["`+vm.Status.PodIP+`"]`))
		Expect(vm.Annotations).To(HaveKeyWithValue("bosh.cloudfoundry.org/ip-address", vm.Status.PodIP))
		env.createVM(ctx, "one")
		again := pod(ctx, vm.Name)
		for _, existing := range []*corev1.Pod{vm, again} {
			delete(existing.Annotations, "bosh.cloudfoundry.org/call") // the repeated call has adopted the Pod
		}
		Expect(again.Annotations).To(Equal(vm.Annotations), "a repeated create_vm has nothing to add")
		env.mustCall(ctx, "set_vm_metadata", vm.Name, map[string]any{"ip-address": "a tag of the operator's"})
		Expect(pod(ctx, vm.Name).Annotations).To(HaveKeyWithValue("bosh.cloudfoundry.org/ip-address", vm.Status.PodIP))
	})

	It("on a dynamic network is left alone when the operator says so, or gave the annotation", func(ctx context.Context) {
		own := map[string]any{"annotations": map[string]any{"cni.projectcalico.org/ipAddrs": `["10.9.8.5"]`}}
		env.mustCall(ctx, "create_vm", "own", stemcellCID, own, dynamicNetwork(), []string{}, map[string]any{})
		Expect(pod(ctx, "agent-own").Annotations).To(HaveKeyWithValue("cni.projectcalico.org/ipAddrs", `["10.9.8.5"]`))

		env.Director = env.directorWithConfig("network", map[string]any{"keep_dynamic_addresses": false})
		env.createVM(ctx, "one")
		Expect(pod(ctx, "agent-one").Annotations).NotTo(HaveKey("cni.projectcalico.org/ipAddrs"))
	})

	It("that is not the one of its manual network is an error with what was reported, and nothing is left", func(ctx context.Context) {
		properties := map[string]any{"annotations": map[string]any{"test/address": "10.66.0.6", "test/hold": "until the event is there"}}
		answered := make(chan director.Response, 1)
		go func() {
			defer GinkgoRecover()
			response, err := env.Call(ctx, "create_vm", "one", stemcellCID, properties, manualNetwork("10.9.8.7"), []string{}, map[string]any{})
			Expect(err).NotTo(HaveOccurred())
			answered <- response
		}()
		var vm *corev1.Pod
		Eventually(func() (err error) {
			vm, err = cluster.CoreV1().Pods(env.namespace).Get(ctx, "agent-one", metav1.GetOptions{})
			return err
		}).WithContext(ctx).Should(Succeed())
		_, err := cluster.CoreV1().Events(env.namespace).Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "said"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: env.namespace, Name: vm.Name, UID: vm.UID},
			Type:           corev1.EventTypeWarning, Reason: "NoSuchPool", Message: "10.9.8.7 is in no pool", LastTimestamp: metav1.Now(),
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(env.annotatePod(ctx, vm.Name, "test/hold", nil)).To(Succeed())

		var response director.Response
		Eventually(answered).WithContext(ctx).Should(Receive(&response))
		Expect(response.Error).NotTo(BeNil())
		Expect(response.Error.Type).To(Equal("Bosh::Clouds::VMCreationFailed"))
		Expect(response.Error.Message).To(ContainSubstring("network default wants the address 10.9.8.7, but the Pod got 10.66.0.6"))
		Expect(response.Error.Message).To(ContainSubstring("NoSuchPool: 10.9.8.7 is in no pool"))
		Expect(env.listObjects(ctx)).To(BeEmpty())
	})

	It("that the Pod did not get in time is named in the error, and nothing is left", func(ctx context.Context) {
		properties := map[string]any{"annotations": map[string]any{"test/hold": "for ever"}}
		shortTimeout := env.directorWithTimeouts(map[string]any{"create_vm": "2s"})
		response, err := shortTimeout.Call(ctx, "create_vm", "one", stemcellCID, properties, manualNetwork("10.9.8.7"), []string{}, map[string]any{})
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).NotTo(BeNil())
		Expect(response.Error.Type).To(Equal("Bosh::Clouds::VMCreationFailed"))
		Expect(response.Error.OkToRetry).To(BeTrue())
		Expect(response.Error.Message).To(ContainSubstring("it asked for 10.9.8.7 (network default)"))
		Expect(env.listObjects(ctx)).To(BeEmpty())
	})

	It("cannot be a range", func(ctx context.Context) {
		network := manualNetwork("10.9.8.16")
		network["default"].(map[string]any)["prefix"] = "28"
		failed := env.mustFail(ctx, "create_vm", "one", stemcellCID, map[string]any{}, network, []string{}, map[string]any{})
		Expect(failed.Type).To(Equal("Bosh::Clouds::NotSupported"))
		Expect(env.listObjects(ctx)).To(BeEmpty())
	})

	It("on an attachment is not believed without Multus' report, and nothing is left", func(ctx context.Context) {
		networks := dynamicNetwork()
		networks["storage"] = map[string]any{"type": "manual", "ip": "10.9.8.7", "netmask": "255.255.255.0", "cloud_properties": map[string]any{"network_attachment": "storage"}}
		failed := env.mustFail(ctx, "create_vm", "one", stemcellCID, map[string]any{}, networks, []string{}, map[string]any{})
		Expect(failed.Message).To(ContainSubstring("the cluster has no Multus"))
		Expect(env.listObjects(ctx)).To(BeEmpty())

		reported := map[string]any{"annotations": map[string]any{"k8s.v1.cni.cncf.io/network-status": `[{"name":"` + env.namespace + `/storage","ips":["10.9.8.7"]}]`}}
		env.mustCall(ctx, "create_vm", "two", stemcellCID, reported, networks, []string{}, map[string]any{})
		Expect(pod(ctx, "agent-two").Annotations["k8s.v1.cni.cncf.io/networks"]).To(MatchJSON(`[{"name":"storage","ips":["10.9.8.7/24"]}]`))
	})

	It("on an attachment that does not exist is not waited for, and nothing is left", func(ctx context.Context) {
		networks := dynamicNetwork()
		networks["storage"] = map[string]any{"type": "dynamic", "cloud_properties": map[string]any{"network_attachment": "infra/storage"}}
		properties := map[string]any{"annotations": map[string]any{"test/hold": "as long as Multus fails"}}
		answered := make(chan director.Response, 1)
		go func() {
			defer GinkgoRecover()
			response, err := env.Call(ctx, "create_vm", "one", stemcellCID, properties, networks, []string{}, map[string]any{})
			Expect(err).NotTo(HaveOccurred())
			answered <- response
		}()
		Eventually(proxy.Requests).WithContext(ctx).Should(ContainElement(And(HavePrefix("GET"), ContainSubstring("/events"))))
		vm := pod(ctx, "agent-one")
		// Multus reports at each try of the kubelet's.
		Eventually(func() (response director.Response, err error) {
			_, err = cluster.CoreV1().Events(env.namespace).Create(ctx, &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{GenerateName: "try-"},
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: env.namespace, Name: vm.Name, UID: vm.UID},
				Type:           corev1.EventTypeWarning, Reason: "NoNetworkFound", LastTimestamp: metav1.Now(),
				Message: "cannot find a network-attachment-definition (storage) in namespace (infra): " +
					`network-attachment-definitions.k8s.cni.cncf.io "storage" not found`,
			}, metav1.CreateOptions{})
			select {
			case response = <-answered:
			default:
			}
			return response, err
		}).WithContext(ctx).Should(HaveField("Error", And(
			HaveField("Type", "Bosh::Clouds::VMCreationFailed"),
			HaveField("OkToRetry", BeFalse()),
			HaveField("Message", ContainSubstring("VM agent-one did not come up: there is no NetworkAttachmentDefinition infra/storage: "+
				`network-attachment-definitions.k8s.cni.cncf.io "storage" not found`)),
		)))
		Expect(env.listObjects(ctx)).To(BeEmpty())
	})
})
