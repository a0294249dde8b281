package cpi

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

func TestCPI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "cpi")
}

var _ = Describe("Strict decoding", func() {
	type inner struct {
		StorageClass string `json:"storage_class"`
	}
	type outer struct {
		Memory int     `json:"memory"`
		Disk   inner   `json:"disk"`
		List   []inner `json:"list"`
	}
	DescribeTable("names what is wrong",
		func(raw, words string) {
			Expect(decodeStrict("cloud_properties", []byte(raw), &outer{})).To(MatchError(ContainSubstring(words)))
		},
		Entry("an unknown key", `{"memry":1}`, `unknown field "memry" (did you mean "memory"?)`),
		Entry("an unknown key below", `{"disk":{"storageclass":"x"}}`, `did you mean "storage_class"?`),
		Entry("an unknown key in a list", `{"list":[{"storage_clas":"x"}]}`, `did you mean "storage_class"?`),
		Entry("a key like no other", `{"zzzzzzzz":1}`, `unknown field "zzzzzzzz"`),
		Entry("the same key twice", `{"memory":1,"memory":2}`, `duplicate field "memory"`),
		Entry("a key in other letters", `{"Memory":1}`, `did you mean "memory"?`),
		Entry("a wrong type", `{"memory":"much"}`, "cloud_properties.memory: a string is not what belongs there"),
	)

	It("takes nothing for an empty hash", func() {
		Expect(decodeStrict("x", nil, &outer{})).To(Succeed())
	})
})

var _ = Describe("Errors", func() {
	It("keep their type however often they are wrapped", func() {
		wrapped := fmt.Errorf("more: %w", errors.Join(vmNotFound("vm-1"), errors.New("and this")))
		Expect(asBOSH(wrapped).Type()).To(Equal(typeVMNotFound))
	})

	It("of create_vm can be retried when the cluster, not the request, was the reason", func() {
		var failed *Error
		Expect(errors.As(creationFailed(&kube.Error{Kind: kube.ErrUnreachable, Err: errors.New("x")}), &failed)).To(BeTrue())
		Expect(failed.Type()).To(Equal(typeVMFailed))
		Expect(failed.CanRetry()).To(BeTrue())
		Expect(errors.As(creationFailed(&kube.Error{Kind: kube.ErrRefused, Err: errors.New("x")}), &failed)).To(BeTrue())
		Expect(failed.CanRetry()).To(BeFalse())
	})
})

var _ = Describe("What is logged", func() {
	It("has no secret in it", func() {
		request := `{"method":"create_vm","arguments":["a","s",{"cpu":1},{},[],{"bosh":{"mbus":{"cert":{"private_key":"SECRET"}},"password":"SECRET"}}],
			"context":{"kubernetes":{"kubeconfig":"SECRET"},"agent":{"mbus":"nats://nats:SECRET@x"}}}`
		Expect(redact([]byte(request))).NotTo(ContainSubstring("SECRET"))
		Expect(redact([]byte(request))).To(ContainSubstring(`"cpu":1`))
		Expect(redact([]byte(`not JSON: SECRET`))).NotTo(ContainSubstring("SECRET"))
	})
})

var _ = Describe("A VM's cloud_properties", func() {
	build := func(raw string) manifest.VM {
		GinkgoHelper()
		properties, err := parseVMProperties(json.RawMessage(raw))
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
		answer, err := (&call{}).calculateVMCloudProperties(vmResources{CPU: 2, RAM: 1024, EphemeralDisk: 4096})
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

var _ = Describe("A cpi-config", func() {
	It("replaces a blobstore and a list as a whole", func() {
		config := DefaultConfig()
		config.Agent.Blobstore = agentsettings.Blobstore{Provider: "dav", Options: map[string]any{"password": "secret"}}
		changed, err := config.with([]byte(`{"agent": {"blobstore": {"provider": "s3", "options": {"bucket_name": "b"}}}}`))
		Expect(err).To(MatchError(ContainSubstring("agent.mbus")), "it is checked as a whole")
		Expect(changed.Agent.Blobstore.Options).To(Equal(map[string]any{"bucket_name": "b"}))
		_, err = config.with([]byte(`{"network": {"address_annotations": [{"name": "example.org/address"}]}}`))
		Expect(err).To(HaveOccurred())
	})
	It("leaves what it does not name", func() {
		config := DefaultConfig()
		config.Agent = agentsettings.Options{Mbus: "nats://10.0.0.6:4222", Blobstore: agentsettings.Blobstore{Provider: "local"}}
		changed, err := config.with([]byte(`{"agent": {"ntp": ["10.0.0.1"]}, "network": {"keep_dynamic_addresses": false}}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(changed.Agent.Blobstore).To(Equal(config.Agent.Blobstore))
		Expect(changed.Network.AddressAnnotations).To(Equal(config.Network.AddressAnnotations))
	})
})
