package vm

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
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
