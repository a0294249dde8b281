package agentsettings_test

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/agentsettings"
)

func TestAgentSettings(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "agentsettings")
}

var _ = Describe("SettingsJSON", func() {
	options := agentsettings.Options{
		Mbus:      "nats://nats:pw@10.0.0.6:4222",
		Blobstore: agentsettings.Blobstore{Provider: "dav", Options: map[string]any{"endpoint": "http://10.0.0.6:25250"}},
	}

	It("returns the complete settings", func() {
		raw, err := options.SettingsJSON(agentsettings.VM{
			AgentID: "a1", Name: "agent-a1", Env: json.RawMessage(`{"bosh":{"group":"g"}}`),
			Networks: map[string]agentsettings.Network{"default": {
				Type: "manual", IP: "10.1.1.1", Netmask: "255.255.255.0", Gateway: "10.1.1.254",
				DNS: []string{"10.0.0.2"}, Default: []string{"dns"},
			}},
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(raw).To(MatchJSON(`{
			"agent_id": "a1", "vm": {"name": "agent-a1", "id": "agent-a1"},
			"mbus": "nats://nats:pw@10.0.0.6:4222", "ntp": [],
			"blobstore": {"provider": "dav", "options": {"endpoint": "http://10.0.0.6:25250"}},
			"disks": {"system": "", "persistent": {}},
			"networks": {"default": {"type": "manual", "ip": "10.1.1.1", "netmask": "255.255.255.0", "gateway": "10.1.1.254",
				"dns": ["10.0.0.2"], "default": ["dns"], "preconfigured": true}},
			"env": {"bosh": {"group": "g"}}}`))
	})

	It("omits time servers, because the agent would wait for chronyd at each boot", func() {
		withNTP := options
		withNTP.NTP = []string{"time.example.com"}
		raw, err := withNTP.SettingsJSON(agentsettings.VM{})
		Expect(err).NotTo(HaveOccurred())
		Expect(string(raw)).To(ContainSubstring(`"ntp":[]`))
	})

	It("returns an empty env if the director sends none", func() {
		for _, env := range []string{"", "null"} {
			raw, err := options.SettingsJSON(agentsettings.VM{Env: json.RawMessage(env)})
			Expect(err).NotTo(HaveOccurred())
			Expect(string(raw)).To(ContainSubstring(`"env":{}`))
		}
	})
})

var _ = Describe("The options for agents", func() {
	DescribeTable("are rejected if they are invalid",
		func(invalid agentsettings.Options, message string) {
			Expect(invalid.Validate()).To(MatchError(ContainSubstring(message)))
		},
		Entry("missing message bus", agentsettings.Options{}, "agent.mbus is missing"),
		Entry("message bus without a scheme", agentsettings.Options{Mbus: "10.0.0.6:4222"}, "agent.mbus is not valid: it must begin with nats://"),
		Entry("message bus with an IPv6 address without brackets", agentsettings.Options{Mbus: "nats://fd00::6:4222"}, "put the IPv6 address in brackets"),
		Entry("message bus with an unknown scheme", agentsettings.Options{Mbus: "natz://10.0.0.6:4222"}, "must begin with nats://"),
		Entry("message bus with an impossible port", agentsettings.Options{Mbus: "nats://10.0.0.6:99999"}, "requires a port from 1 to 65535"),
		Entry("message bus without a port", agentsettings.Options{Mbus: "nats://10.0.0.6"}, "requires a port from 1 to 65535"),
		Entry("message bus without a host", agentsettings.Options{Mbus: "nats://:pw@:4222"}, "the host is missing"),
		Entry("message bus with # in the password", agentsettings.Options{Mbus: "nats://nats:p#w@10.0.0.6:4222"}, "percent-encode special characters"),
		Entry("message bus with / in the password", agentsettings.Options{Mbus: "nats://nats:1/w@10.0.0.6:4222"}, "percent-encode special characters"),
		Entry("message bus with % in the password", agentsettings.Options{Mbus: "nats://nats:p%w@10.0.0.6:4222"}, "percent-encode special characters"),
		Entry("blobstore options without a provider",
			agentsettings.Options{Mbus: "nats://a:1", Blobstore: agentsettings.Blobstore{Options: map[string]any{"a": 1}}},
			"agent.blobstore.provider is missing"),
	)

	DescribeTable("accept URLs of the agent's message buses", func(mbus string) {
		Expect(agentsettings.Options{Mbus: mbus}.Validate()).To(Succeed())
	},
		Entry("of a director", "nats://nats:pw@10.0.0.6:4222"), Entry("of create-env", "https://mbus:p%23w@0.0.0.0:6868"),
		Entry("with an IPv6 address", "nats://[fd00::6]:4222"), Entry("with a host name", "nats://q-s0.web.default.bosh:4222"),
	)

	It("are rejected with an error that does not contain the password of the message bus", func() {
		Expect(agentsettings.Options{Mbus: "nats//nats:SECRET@x"}.Validate()).NotTo(MatchError(ContainSubstring("SECRET")))
	})
})

var _ = Describe("Files", func() {
	options := agentsettings.Options{Mbus: "nats://nats:pw@10.0.0.6:4222"}

	It("returns the settings, and the values for the start script", func() {
		vm := agentsettings.VM{
			AgentID: "a1", Name: "agent-a1",
			Env: json.RawMessage(`{"bosh": {}, "persistent_disk_mount_options": ["noatime", "commit=30"]}`),
			Networks: map[string]agentsettings.Network{
				"public":  {DNS: []string{"10.0.0.3", "10.0.0.4"}},
				"default": {DNS: []string{"10.0.0.2"}},
				"vip":     {},
			},
		}
		files, err := options.Files(vm)
		Expect(err).NotTo(HaveOccurred())
		settings, err := options.SettingsJSON(vm)
		Expect(err).NotTo(HaveOccurred())
		Expect(files).To(Equal(agentsettings.Files{
			"settings.json":    settings,
			"agent.patch.json": []byte(agentsettings.ConfigPatch),
			"mount-options":    []byte("noatime,commit=30"),
			"name-servers":     []byte("10.0.0.2\n10.0.0.3\n10.0.0.4"),
		}))
	})

	DescribeTable("returns empty files without mount options and name servers", func(env string) {
		files, err := options.Files(agentsettings.VM{Env: json.RawMessage(env)})
		Expect(err).NotTo(HaveOccurred())
		Expect(files).To(HaveKeyWithValue("mount-options", BeEmpty()))
		Expect(files).To(HaveKeyWithValue("name-servers", BeEmpty()))
	},
		Entry("missing env", ""),
		Entry("env that is null", "null"),
		Entry("env with similar keys at another level", `{"bosh": {"dns": ["10.0.0.2"], "persistent_disk_mount_options": ["noatime"]}}`),
	)

	It("rejects an env that the agent could not decode, with an error that does not contain its values", func() {
		_, err := options.Files(agentsettings.VM{Env: json.RawMessage(`{"persistent_disk_mount_options": "SECRET"}`)})
		Expect(err).To(MatchError(ContainSubstring("persistent_disk_mount_options")))
		Expect(err).NotTo(MatchError(ContainSubstring("SECRET")))
	})

	It("returns a configuration patch that is valid JSON", func() {
		Expect(json.Valid([]byte(agentsettings.ConfigPatch))).To(BeTrue())
	})
})
