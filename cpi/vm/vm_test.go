package vm

import (
	"encoding/json"
	"errors"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

func TestVM(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "machine")
}

var _ = Describe("A VM's cloud_properties", func() {
	build := func(raw string) manifest.VM {
		GinkgoHelper()
		properties, err := parseProperties(json.RawMessage(raw))
		Expect(err).NotTo(HaveOccurred())
		vm := manifest.VM{}
		Expect(properties.apply(&vm)).To(Succeed())
		return vm
	}

	It("give the machine its CPUs and memory, and no more", func() {
		vm := build(`{"cpu":2,"memory":1024}`)
		for _, list := range []corev1.ResourceList{vm.Resources.Requests, vm.Resources.Limits} {
			Expect(list.Cpu().String()).To(Equal("2"))
			Expect(list.Memory().String()).To(Equal("1Gi"))
		}
	})

	It("take quantities too", func() {
		vm := build(`{"cpu":"500m","memory":"256Mi"}`)
		Expect(vm.Resources.Limits.Cpu().String()).To(Equal("500m"))
		Expect(vm.Resources.Limits.Memory().String()).To(Equal("256Mi"))
	})

	It("ask for an ephemeral disk's size without a limit, which would cost the machine", func() {
		vm := build(`{"ephemeral_disk":4096}`)
		Expect(vm.Resources.Requests.StorageEphemeral().String()).To(Equal("4Gi"))
		Expect(vm.Resources.Limits).NotTo(HaveKey(corev1.ResourceEphemeralStorage))
		Expect(vm.EphemeralClaim).To(BeNil())
	})

	It("put the ephemeral disk on a claim when they name a class", func() {
		vm := build(`{"ephemeral_disk":{"size":4096,"storage_class":"fast"}}`)
		Expect(*vm.EphemeralClaim.StorageClassName).To(Equal("fast"))
		Expect(vm.EphemeralClaim.Resources.Requests.Storage().String()).To(Equal("4Gi"))
		Expect(vm.Resources.Requests).NotTo(HaveKey(corev1.ResourceEphemeralStorage))
	})

	It("let native resources win", func() {
		vm := build(`{"cpu":2,"resources":{"limits":{"cpu":"4","example.com/gpu":"1"}}}`)
		Expect(vm.Resources.Requests.Cpu().String()).To(Equal("2"))
		Expect(vm.Resources.Limits.Cpu().String()).To(Equal("4"))
		Expect(vm.Resources.Limits).To(HaveKey(corev1.ResourceName("example.com/gpu")))
	})

	It("place the machine in its zone and region", func() {
		Expect(build(`{"zone":"z","region":"r","node_selector":{"disk":"ssd"}}`).NodeSelector).To(Equal(map[string]string{
			"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "disk": "ssd",
		}))
	})

	It("are what calculate_vm_cloud_properties answers", func() {
		answer, err := Calculate(Resources{CPU: 2, RAM: 1024, EphemeralDisk: 4096})
		Expect(err).NotTo(HaveOccurred())
		raw, err := json.Marshal(answer)
		Expect(err).NotTo(HaveOccurred())
		vm := build(string(raw))
		Expect(vm.Resources.Limits.Cpu().String()).To(Equal("2"))
		Expect(vm.Resources.Limits.Memory().String()).To(Equal("1Gi"))
		Expect(vm.Resources.Requests.StorageEphemeral().String()).To(Equal("4Gi"))
	})

	It("give a machine without special wishes all privileges", func() {
		Expect(build(`{}`).SecurityContext).To(BeNil())
		Expect(*build(`{"security":{"privileged":false,"capabilities":{"add":["SYS_ADMIN"]}}}`).SecurityContext.Privileged).To(BeFalse())
	})
})

var _ = Describe("A create_vm that failed", func() {
	failed := func(err error) *call.Error {
		GinkgoHelper()
		var known *call.Error
		Expect(errors.As(creationError(err), &known)).To(BeTrue())
		return known
	}

	It("can be retried when the cluster, not the request, was the reason", func() {
		unreachable := failed(&kube.Error{Kind: kube.ErrUnreachable, Err: errors.New("x")})
		Expect(call.VMCreationFailed.Is(unreachable)).To(BeTrue())
		Expect(unreachable.CanRetry()).To(BeTrue())
		for _, kind := range []error{kube.ErrRefused, kube.ErrUnauthorized, kube.ErrNoCredentials} {
			Expect(failed(&kube.Error{Kind: kind, Err: errors.New("x")}).CanRetry()).To(BeFalse(), "%v", kind)
		}
	})

	It("keeps the type of its cause", func() {
		Expect(failed(call.NotSupported.Errorf("x")).Type()).To(BeEquivalentTo(call.NotSupported))
	})
})
