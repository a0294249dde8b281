package vm

import (
	"encoding/json"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
)

var _ = Describe("A VM's cloud_properties", func() {
	build := func(raw string) manifest.VM {
		GinkgoHelper()
		properties, err := parseProperties(json.RawMessage(raw))
		Expect(err).NotTo(HaveOccurred())
		vm := manifest.VM{}
		Expect(properties.apply(&vm)).To(Succeed())
		return vm
	}

	It("set CPU and memory as requests and limits", func() {
		vm := build(`{"cpu":2,"memory":1024}`)
		for _, list := range []corev1.ResourceList{vm.Resources.Requests, vm.Resources.Limits} {
			Expect(list.Cpu().String()).To(Equal("2"))
			Expect(list.Memory().String()).To(Equal("1Gi"))
		}
	})

	It("accept quantities", func() {
		vm := build(`{"cpu":"500m","memory":"256Mi"}`)
		Expect(vm.Resources.Limits.Cpu().String()).To(Equal("500m"))
		Expect(vm.Resources.Limits.Memory().String()).To(Equal("256Mi"))
	})

	It("request the size of the ephemeral disk without a limit, which could evict the VM", func() {
		vm := build(`{"ephemeral_disk":4096}`)
		Expect(vm.Resources.Requests.StorageEphemeral().String()).To(Equal("4Gi"))
		Expect(vm.Resources.Limits).NotTo(HaveKey(corev1.ResourceEphemeralStorage))
		Expect(vm.EphemeralClaim).To(BeNil())
	})

	It("create a PVC for the ephemeral disk if they name a storage class", func() {
		vm := build(`{"ephemeral_disk":{"size":4096,"storage_class":"fast"}}`)
		Expect(*vm.EphemeralClaim.StorageClassName).To(Equal("fast"))
		Expect(vm.EphemeralClaim.Resources.Requests.Storage().String()).To(Equal("4Gi"))
		Expect(vm.Resources.Requests).NotTo(HaveKey(corev1.ResourceEphemeralStorage))
	})

	It("override cpu and memory with native resources", func() {
		vm := build(`{"cpu":2,"resources":{"limits":{"cpu":"4","example.com/gpu":"1"}}}`)
		Expect(vm.Resources.Requests.Cpu().String()).To(Equal("2"))
		Expect(vm.Resources.Limits.Cpu().String()).To(Equal("4"))
		Expect(vm.Resources.Limits).To(HaveKey(corev1.ResourceName("example.com/gpu")))
	})

	It("select nodes in the zone and region", func() {
		Expect(build(`{"zone":"z","region":"r","node_selector":{"disk":"ssd"}}`).NodeSelector).To(Equal(map[string]string{
			"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "disk": "ssd",
		}))
	})

	It("accept the result of calculate_vm_cloud_properties", func() {
		calculated, err := Calculate(Resources{CPU: 2, RAM: 1024, EphemeralDisk: 4096})
		Expect(err).NotTo(HaveOccurred())
		raw, err := json.Marshal(calculated)
		Expect(err).NotTo(HaveOccurred())
		vm := build(string(raw))
		Expect(vm.Resources.Limits.Cpu().String()).To(Equal("2"))
		Expect(vm.Resources.Limits.Memory().String()).To(Equal("1Gi"))
		Expect(vm.Resources.Requests.StorageEphemeral().String()).To(Equal("4Gi"))
	})

	It("make the VM privileged by default", func() {
		Expect(build(`{}`).SecurityContext).To(BeNil())
		Expect(*build(`{"security":{"privileged":false,"capabilities":{"add":["SYS_ADMIN"]}}}`).SecurityContext.Privileged).To(BeFalse())
	})
})

var _ = Describe("The error of create_vm", func() {
	typedError := func(err error) *call.Error {
		GinkgoHelper()
		var typed *call.Error
		Expect(errors.As(creationError(err), &typed)).To(BeTrue())
		return typed
	}

	It("is retryable if the cluster, not the request, was the cause", func() {
		unreachable := typedError(&kube.Error{Kind: kube.ErrUnreachable, Err: errors.New("x")})
		Expect(call.VMCreationFailed.Is(unreachable)).To(BeTrue())
		Expect(unreachable.CanRetry()).To(BeTrue())
		for _, kind := range []error{kube.ErrDenied, kube.ErrUnauthorized, kube.ErrNoCredentials} {
			Expect(typedError(&kube.Error{Kind: kind, Err: errors.New("x")}).CanRetry()).To(BeFalse(), "%v", kind)
		}
	})

	It("keeps the type of its cause", func() {
		Expect(typedError(call.CodeNetworkUnsupported.Errorf("x")).Type()).To(BeEquivalentTo(call.NotSupported))
	})
})

var _ = Describe("reboot_vm", func() {
	DescribeTable("reports the state of a Pod that is not active", func(pod *corev1.Pod, state string) {
		pod.Name, pod.Spec.NodeName = "agent-1", "node-1"
		err := hotPlugStrategy{&Session{}}.restartVM(manifest.VMPod{Pod: pod})
		Expect(err).To(MatchError("cannot reboot VM agent-1: its Pod is " + state + "; recreate the VM"))
		Expect(call.CodeVMNotRunning.Is(err)).To(BeTrue())
	},
		Entry("being deleted", &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}, "being deleted"),
		Entry("failed", &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, "Failed"),
	)
})

var _ = Describe("The digest of a create_vm request", func() {
	request := func(agentID string) Request {
		GinkgoHelper()
		var networks network.Networks
		Expect(json.Unmarshal([]byte(`{"default":{"type":"manual","ip":"10.0.0.7","netmask":"255.255.255.0","gateway":"10.0.0.1"}}`), &networks)).To(Succeed())
		return Request{AgentID: agentID, Stemcell: "registry.example.com/stemcell@sha256:1", Properties: json.RawMessage(`{"cpu": 2}`),
			Networks: networks, Disks: []string{"disk-1"}, Env: json.RawMessage(`{"bosh": {"group": "web"}}`)}
	}

	It("is the same in all releases, so that a retried call adopts its VM after an upgrade of the CPI", func() {
		Expect(request("agent-1").digest()).To(Equal("db5c33aa29d5b1fbf7f8e22281a992426e648a5d0e0055c6b444b9bec65e75f8"))
	})

	It("differs for another request", func() {
		first, err := request("agent-1").digest()
		Expect(err).NotTo(HaveOccurred())
		Expect(request("agent-2").digest()).NotTo(Equal(first))
	})
})
