package cpi

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/agentsettings"
)

func TestCPI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "cpi")
}

// kubeconfigSection is a section kubernetes with this kubeconfig.
func kubeconfigSection(kubeconfig string) map[string]any {
	return map[string]any{"kubeconfig": kubeconfig}
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
		changed, err := config.withOverrides([]byte(`{"agent": {"blobstore": {"provider": "s3", "options": {"bucket_name": "b"}}}}`))
		Expect(err).To(MatchError(ContainSubstring("agent.mbus")), "it is checked as a whole")
		Expect(changed.Agent.Blobstore.Options).To(Equal(map[string]any{"bucket_name": "b"}))
		_, err = config.withOverrides([]byte(`{"network": {"address_annotations": [{"name": "example.org/address"}]}}`))
		Expect(err).To(HaveOccurred())
	})
	DescribeTable("may not make anything of the CPI's own machine, unless cpi.json names it", func(kubernetes map[string]any, message string, allowed ConfigOptions) {
		config := DefaultConfig()
		config.Agent.Mbus = "nats://10.0.0.6:4222"
		raw, err := json.Marshal(map[string]any{"kubernetes": kubernetes})
		Expect(err).NotTo(HaveOccurred())
		_, err = config.withOverrides(raw)
		Expect(err).To(MatchError(ContainSubstring(message)))
		config.CPIConfig = allowed
		_, err = config.withOverrides(raw)
		Expect(err).NotTo(HaveOccurred())
	},
		Entry("run a program", kubeconfigSection("users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}}}]"),
			`users[u].user.exec may not run "aws"`, ConfigOptions{Commands: []string{"aws"}}),
		Entry("run a client library's provider", kubeconfigSection("users: [{name: u, user: {auth-provider: {name: gcp}}}]"),
			`users[u].user.auth-provider may not run "auth-provider gcp"`, ConfigOptions{Commands: []string{"auth-provider gcp"}}),
		Entry("send a file as a token", kubeconfigSection("users: [{name: u, user: {tokenFile: /etc/shadow}}]"),
			`users[u].user.tokenFile may not read the file "/etc/shadow"`, ConfigOptions{Files: []string{"/etc/shadow"}}),
		Entry("read a key", kubeconfigSection("users: [{name: u, user: {client-certificate: /c, client-key: /k}}]"),
			`users[u].user.client-certificate may not read the file "/c"`, ConfigOptions{Files: []string{"/c", "/k"}}),
		Entry("read a certificate authority", kubeconfigSection("clusters: [{name: c, cluster: {server: 'https://x', certificate-authority: /ca}}]"),
			`clusters[c].cluster.certificate-authority may not read the file "/ca"`, ConfigOptions{Files: []string{"/ca"}}),
		Entry("read another kubeconfig", map[string]any{"kubeconfig_path": "/home/bosh/kubeconfig"},
			`kubernetes.kubeconfig_path may not read the file "/home/bosh/kubeconfig"`, ConfigOptions{Files: []string{"/home/bosh/kubeconfig"}}),
	)

	It("may name a proxy, and all of its credentials", func() {
		config := DefaultConfig()
		config.Agent.Mbus = "nats://10.0.0.6:4222"
		_, err := config.withOverrides([]byte(`{"kubernetes": {"kubeconfig": "clusters: [{name: c, cluster: {server: 'https://x', ` +
			`proxy-url: 'http://p:3128', certificate-authority-data: Y2E=}}]\nusers: [{name: u, user: {token: t, client-key-data: a2V5}}]"}}`))
		Expect(err).NotTo(HaveOccurred())
	})

	It("cannot allow itself anything", func() {
		config := DefaultConfig()
		config.Agent.Mbus = "nats://10.0.0.6:4222"
		_, err := config.withOverrides([]byte(`{"cpi_config": {"files": ["/k"]}, "kubernetes": {"kubeconfig_path": "/k"}}`))
		Expect(err).To(MatchError(ContainSubstring("may not read")))
	})

	It("replaces the marks of Pods as a whole", func() {
		config := DefaultConfig()
		config.Agent.Mbus = "nats://10.0.0.6:4222"
		changed, err := config.withOverrides([]byte(`{"pods": {"labels": {"kuma.io/sidecar-injection": "disabled"}}}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(changed.Pods.Labels).To(Equal(map[string]string{"kuma.io/sidecar-injection": "disabled"}))
		Expect(changed.Pods.Annotations).To(Equal(config.Pods.Annotations))
		_, err = config.withOverrides([]byte(`{"pods": {"labels": {"bosh.cloudfoundry.org/role": "x"}}}`))
		Expect(err).To(MatchError(ContainSubstring("pods.labels.bosh.cloudfoundry.org/role is the CPI's own label")))
	})

	It("leaves what it does not name", func() {
		config := DefaultConfig()
		config.Agent = agentsettings.Options{Mbus: "nats://10.0.0.6:4222", Blobstore: agentsettings.Blobstore{Provider: "local"}}
		changed, err := config.withOverrides([]byte(`{"agent": {"ntp": ["10.0.0.1"]}, "network": {"keep_dynamic_addresses": false}}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(changed.Agent.Blobstore).To(Equal(config.Agent.Blobstore))
		Expect(changed.Network.AddressAnnotations).To(Equal(config.Network.AddressAnnotations))
	})
})
