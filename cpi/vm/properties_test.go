package vm

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
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

	DescribeTable("are rejected with the key and the remedy", func(raw, message string) {
		properties, err := parseProperties(json.RawMessage(raw))
		if err == nil {
			err = properties.apply(&manifest.VM{})
		}
		Expect(err).To(And(haveCode(call.CodeInvalidProperty), MatchError(ContainSubstring(message))))
	},
		Entry("an empty quantity", `{"memory":""}`, "cloud_properties.memory is empty; remove the key, or set a value"),
		Entry("an empty string", `{"zone":""}`, "cloud_properties.zone is empty; remove the key, or set a value"),
		Entry("a boolean as a quantity", `{"memory":true}`, `cloud_properties.memory must be a number, or a quantity like "500m" or "2Gi"`),
		Entry("a fraction of a MiB", `{"memory":1.5}`, "cloud_properties.memory 1.5 must be a whole number of MiB"),
		Entry("more memory than 64 bits can express", `{"memory":17592186044416}`, "cloud_properties.memory 17592186044416 is not valid; use at most"),
		Entry("a quantity that is too large", `{"memory":"2Ei"}`, "cloud_properties.memory 2Ei is not valid; use at most 1Ei"),
		Entry("a boolean in the annotations", `{"annotations":{"prometheus.io/scrape":true}}`,
			`cloud_properties.annotations["prometheus.io/scrape"] must be a string, not a boolean; put it in quotes`),
		Entry("a hash in a list of names", `{"image_pull_secrets":[{"name":"r"}]}`, "cloud_properties.image_pull_secrets[0] must be a string, not a hash"),
		Entry("a native quantity", `{"resources":{"limits":{"memory":"1GB"}}}`, `cloud_properties.resources.limits["memory"] must be a quantity`),
		Entry("a key of another CPI", `{"ports":[{"host":"80"}]}`, `cloud_properties: unknown key "ports" (did you mean "services"?)`),
		Entry("all unknown keys at once", `{"instance_type":"m4","ephemeral_disk":{"size":1,"type":"gp2"},"security_groups":[]}`,
			`cloud_properties.ephemeral_disk: unknown key "type"; cloud_properties: unknown key "instance_type"; cloud_properties: unknown key "security_groups"`),
	)

	It("are not set if they are null", func() {
		Expect(build(`{"cpu":null,"memory":null,"ephemeral_disk":null,"services":null,"zone":null}`)).To(Equal(build(`{}`)))
	})

	It("may be whole numbers with a decimal point, as some templates compute them", func() {
		vm := build(`{"memory":4096.0}`)
		Expect(vm.Resources.Limits.Memory().String()).To(Equal("4Gi"))
	})

	It("may be half a CPU", func() {
		vm := build(`{"cpu":0.5}`)
		Expect(vm.Resources.Limits.Cpu().String()).To(Equal("500m"))
	})

	It("make the VM privileged by default", func() {
		Expect(build(`{}`).SecurityContext).To(BeNil())
		Expect(*build(`{"security":{"privileged":false,"capabilities":{"add":["SYS_ADMIN"]}}}`).SecurityContext.Privileged).To(BeFalse())
	})
})
