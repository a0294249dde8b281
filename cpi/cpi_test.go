package cpi

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/agentsettings"
)

func TestCPI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "cpi")
}

var _ = Describe("What is logged", func() {
	It("has no secret in it", func() {
		request := `{"method":"create_vm","arguments":["a","s",{"cpu":1},{},[],{"bosh":{"mbus":{"cert":{"private_key":"SECRET"}},"password":"SECRET"}}],
			"context":{"kubernetes":{"kubeconfig":"SECRET"},"agent":{"mbus":"nats://nats:SECRET@x"}}}`
		Expect(redact([]byte(request))).NotTo(ContainSubstring("SECRET"))
		Expect(redact([]byte(request))).To(ContainSubstring(`"cpu":1`))
		Expect(redact([]byte(`not JSON: SECRET`))).NotTo(ContainSubstring("SECRET"))
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
