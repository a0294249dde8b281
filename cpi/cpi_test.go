package cpi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/test/harness/canary"
)

func TestCPI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "cpi")
}

// digest is the SHA-256 of an image.
const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// kubeconfigSection returns a kubernetes section with this kubeconfig.
func kubeconfigSection(kubeconfig string) map[string]any {
	return map[string]any{"kubeconfig": kubeconfig}
}

var _ = Describe("redact", func() {
	It("removes all secrets", func() {
		request := `{"method":"create_vm","arguments":["a","s",{"cpu":1},{},[],{"bosh":{"mbus":{"cert":{"private_key":"SECRET"}},"password":"SECRET"}}],
			"context":{"kubernetes":{"kubeconfig":"SECRET"},"agent":{"mbus":"nats://nats:SECRET@x"}}}`
		Expect(redact([]byte(request))).NotTo(ContainSubstring("SECRET"))
		Expect(redact([]byte(request))).To(ContainSubstring(`"cpu":1`))
		Expect(redact([]byte(`not JSON: SECRET`))).NotTo(ContainSubstring("SECRET"))
	})
})

var _ = Describe("A cpi-config", func() {
	It("replaces the blobstore and lists as a whole", func() {
		config := DefaultConfig()
		config.Agent.Blobstore = agentsettings.Blobstore{Provider: "dav", Options: map[string]any{"password": "secret"}}
		changed, err := config.withOverrides([]byte(`{"agent": {"blobstore": {"provider": "s3", "options": {"bucket_name": "b"}}}}`))
		Expect(err).To(MatchError(ContainSubstring("agent.mbus")), "the result is validated as a whole")
		Expect(changed.Agent.Blobstore.Options).To(Equal(map[string]any{"bucket_name": "b"}))
		_, err = config.withOverrides([]byte(`{"kubernetes": {"network": {"address_annotations": [{"name": "example.org/address"}]}}}`))
		Expect(err).To(HaveOccurred())
	})
	It("replaces the image of bosh-node, and resets it with the registries", func() {
		const image, other = "a.test/bosh-node@sha256:" + digest, "b.test/bosh-node@sha256:" + digest
		config := DefaultConfig()
		config.Agent.Mbus, config.NodeImage = "nats://10.0.0.6:4222", image
		for overrides, expected := range map[string]string{
			`{}`: image, `{"stemcell": {}}`: "", `{"node_image": "` + other + `"}`: other, `{"stemcell": {}, "node_image": "` + other + `"}`: other,
		} {
			changed, err := config.withOverrides([]byte(`{"kubernetes": ` + overrides + `}`))
			Expect(err).NotTo(HaveOccurred())
			Expect(changed.NodeImage).To(Equal(expected), overrides)
		}
		_, err := config.withOverrides([]byte(`{"kubernetes": {"node_image": "b.test/bosh-node:1"}}`))
		Expect(err).To(MatchError(ContainSubstring("requires a repository and a digest")))
		_, err = config.withOverrides([]byte(`{"kubernetes": {"node_image": 1}}`))
		Expect(err).To(MatchError(ContainSubstring("the cpi-config's property kubernetes.node_image")))
	})
	DescribeTable("cannot access the host of the CPI unless cpi.json allows it", func(kubernetes map[string]any, message string, allowed ConfigOptions) {
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
		Entry("a program", kubeconfigSection("users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}}}]"),
			`users[u].user.exec must not run program "aws"`, ConfigOptions{AllowedCommands: []string{"aws"}}),
		Entry("a token file", kubeconfigSection("users: [{name: u, user: {tokenFile: /etc/shadow}}]"),
			`users[u].user.tokenFile must not refer to file "/etc/shadow"`, ConfigOptions{AllowedFiles: []string{"/etc/shadow"}}),
		Entry("a client certificate and key", kubeconfigSection("users: [{name: u, user: {client-certificate: /c, client-key: /k}}]"),
			`users[u].user.client-certificate must not refer to file "/c"`, ConfigOptions{AllowedFiles: []string{"/c", "/k"}}),
		Entry("a certificate authority", kubeconfigSection("clusters: [{name: c, cluster: {server: 'https://x', certificate-authority: /ca}}]"),
			`clusters[c].cluster.certificate-authority must not refer to file "/ca"`, ConfigOptions{AllowedFiles: []string{"/ca"}}),
		Entry("a kubeconfig file", map[string]any{"kubeconfig_path": "/home/bosh/kubeconfig"},
			`kubernetes.kubeconfig_path must not refer to file "/home/bosh/kubeconfig"`, ConfigOptions{AllowedFiles: []string{"/home/bosh/kubeconfig"}}),
	)

	It("may contain a proxy and inline credentials", func() {
		config := DefaultConfig()
		config.Agent.Mbus = "nats://10.0.0.6:4222"
		_, err := config.withOverrides([]byte(`{"kubernetes": {"kubeconfig": "clusters: [{name: c, cluster: {server: 'https://x', ` +
			`proxy-url: 'http://p:3128', certificate-authority-data: Y2E=}}]\nusers: [{name: u, user: {token: t, client-key-data: a2V5}}]"}}`))
		Expect(err).NotTo(HaveOccurred())
	})

	It("cannot extend its own access to the host", func() {
		config := DefaultConfig()
		config.Agent.Mbus = "nats://10.0.0.6:4222"
		_, err := config.withOverrides([]byte(`{"kubernetes": {"cpi_config": {"allowed_files": ["/k"]}, "kubeconfig_path": "/k"}}`))
		Expect(err).To(MatchError(ContainSubstring("property kubernetes.cpi_config is only for the job")))
	})

	It("replaces Pod labels as a whole, and keeps Pod annotations", func() {
		config := DefaultConfig()
		config.Agent.Mbus = "nats://10.0.0.6:4222"
		changed, err := config.withOverrides([]byte(`{"kubernetes": {"pods": {"labels": {"kuma.io/sidecar-injection": "disabled"}}}}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(changed.Pods.Labels).To(Equal(map[string]string{"kuma.io/sidecar-injection": "disabled"}))
		Expect(changed.Pods.Annotations).To(Equal(config.Pods.Annotations))
		_, err = config.withOverrides([]byte(`{"kubernetes": {"pods": {"labels": {"bosh.cloudfoundry.org/role": "x"}}}}`))
		Expect(err).To(MatchError(ContainSubstring("kubernetes.pods.labels.bosh.cloudfoundry.org/role is reserved for the CPI")))
	})

	DescribeTable("cannot have keys at a place where they would be ignored", func(cpiConfig, message string) {
		config := DefaultConfig()
		config.Agent.Mbus = "nats://10.0.0.6:4222"
		_, err := config.withOverrides([]byte(cpiConfig))
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("outside of a section", `{"kubeconfig": "x", "namespace": "other"}`, "property kubeconfig must be in the hash kubernetes"),
		Entry("outside of the section agent", `{"mbus": "nats://x:1"}`, "property mbus must be in the hash agent"),
		Entry("outside of the section kubernetes", `{"stemcell": {"registry": {}}}`, "property stemcell must be in the hash kubernetes"),
		Entry("outside of the section pods", `{"helper_limits": {}}`, "property helper_limits must be in the hash kubernetes.pods"),
		Entry("outside of the section timeouts", `{"unschedulable": "5m"}`, "property unschedulable must be in the hash kubernetes.timeouts"),
		Entry("for the job only", `{"kubernetes": {"log": {"level": "debug"}}}`, "property kubernetes.log is only for the job kubernetes_cpi"),
		Entry("for the job only, outside of the section", `{"log": {"level": "debug"}}`, "property log is only for the job kubernetes_cpi"),
		Entry("that are variables of the job's environment", `{"env": {"no_proxy": "a"}}`, "property env is only for the job kubernetes_cpi"),
		Entry("misspelled", `{"kubernetes": {"name_space": "b"}}`, `property kubernetes: unknown key "name_space" (did you mean "namespace"?)`),
		Entry("in a hash of the job's name", `{"kubernetes_cpi": {"kubernetes": {}}}`, "property kubernetes must not be in the hash kubernetes_cpi"),
		Entry("in an unknown section", `{"cluster": {"kubeconfig": "x"}}`, "property kubeconfig must not be in the hash cluster"),
		Entry("in a misspelled section", `{"kubernets": {"kubeconfig": "x"}}`, `unknown property kubernets (did you mean "kubernetes"?)`),
	)

	It("may have nulls, which change nothing", func() {
		config := DefaultConfig()
		config.Agent.Mbus = "nats://10.0.0.6:4222"
		changed, err := config.withOverrides([]byte(`{"agent": null, "kubernetes": {"namespace": null, "node_image": null, "pods": {"labels": null}}}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(changed.Pods.Labels).To(Equal(config.Pods.Labels))
	})

	It("may have the keys of the director", func() {
		config := DefaultConfig()
		config.Agent.Mbus = "nats://10.0.0.6:4222"
		_, err := config.withOverrides([]byte(`{"director_uuid": "d", "request_id": "r", "vm": {"stemcell": {"api_version": 3}}, "other": {"a": 1}}`))
		Expect(err).NotTo(HaveOccurred())
	})

	It("keeps settings that it does not contain", func() {
		config := DefaultConfig()
		config.Agent = agentsettings.Options{Mbus: "nats://10.0.0.6:4222", Blobstore: agentsettings.Blobstore{Provider: "local"}}
		changed, err := config.withOverrides([]byte(`{"agent": {"ntp": ["10.0.0.1"]}, "kubernetes": {"network": {"keep_dynamic_addresses": false}}}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(changed.Agent.Blobstore).To(Equal(config.Agent.Blobstore))
		Expect(changed.Network.AddressAnnotations).To(Equal(config.Network.AddressAnnotations))
	})
})

var _ = It("cpi.json and a cpi-config show no secret in an error, however they are broken", func() {
	kubeconfig := `{"current-context": "it", "contexts": [{"name": "it", "context": {"cluster": "k", "user": "u"}}],
		"clusters": [{"name": "k", "cluster": {"server": "https://u:canary@10.0.0.1:6443"}}], "users": [{"name": "u", "user": {"token": "canary"}}]}`
	document := map[string]any{
		"agent": map[string]any{"mbus": "nats://nats:canary@10.0.0.6:4222", "blobstore": map[string]any{"provider": "dav", "options": map[string]any{
			"endpoint": "http://u:canary@10.0.0.6:25250", "user": "agent", "password": "canary"}}},
		"kubernetes": map[string]any{
			"kubeconfig": kubeconfig,
			"stemcell": map[string]any{
				"registry": map[string]any{"repository": "u:canary@registry.test/stemcells", "pull_repository": "u:canary@registry.test/stemcells", "username": "u",
					"password": "canary", "token": "canary", "ca": "canary", "pull_secret": map[string]any{"name": "s", "username": "u", "password": "canary"}},
				"registry_mirrors": map[string]any{"registry.test": "u:canary@mirror.test"},
			},
		},
	}
	path := filepath.Join(GinkgoT().TempDir(), "cpi.json")
	broken := 0
	for _, text := range canary.Documents(document, "name", "provider") {
		Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
		_, err := LoadConfig(path)
		_, overridingErr := DefaultConfig().withOverrides([]byte(text))
		for _, err := range []error{err, overridingErr} {
			if err != nil {
				broken++
				Expect(canary.IsIn(err.Error())).To(BeFalse(), "%v for %s", err, text)
			}
		}
	}
	Expect(broken).To(BeNumerically(">", 2000))
})
