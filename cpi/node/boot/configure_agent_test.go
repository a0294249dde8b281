//go:build linux

package boot

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/agentsettings"
)

// linuxOptions are the agent's options for its platform: see ConfigPatch in agentsettings.
type linuxOptions map[string]any

// expectedOptions returns the options that every agent gets, and the extra ones.
func expectedOptions(extra linuxOptions) linuxOptions {
	options := linuxOptions{
		"UsePreformattedPersistentDisk": true, "BindMountPersistentDisk": false, "SkipDiskSetup": true, "UseDefaultTmpDir": true,
		"DevicePathResolutionType": "",
	}
	maps.Copy(options, extra)
	return options
}

var _ = Describe("The configuration of an agent", func() {
	// merge returns an agent.json with the patch.
	merge := func(original string) string {
		GinkgoHelper()
		merged, err := mergePatch([]byte(original), []byte(agentsettings.ConfigPatch))
		Expect(err).NotTo(HaveOccurred())
		return string(merged)
	}

	DescribeTable("has the CPI's options, and otherwise the stemcell's", func(stemcell string, extra linuxOptions, settings map[string]any) {
		original, err := os.ReadFile(filepath.Join("testdata/agents", stemcell+".json"))
		Expect(err).NotTo(HaveOccurred())
		if settings == nil {
			settings = map[string]any{}
		}
		settings["Sources"] = []any{map[string]any{"Type": "File", "SettingsPath": "/var/vcap/bosh/warden-cpi-agent-env.json"}}
		want, err := json.Marshal(map[string]any{
			"Platform": map[string]any{"Linux": expectedOptions(extra)}, "Infrastructure": map[string]any{"Settings": settings},
		})
		Expect(err).NotTo(HaveOccurred())
		merged := merge(string(original))
		Expect(merged).To(MatchJSON(want))
		Expect(merge(merged)).To(Equal(merged), "by the next start, too")
	},
		Entry(nil, "warden-jammy", linuxOptions{"UseMonitIptablesFirewall": true}, nil),
		Entry(nil, "warden-jammy-2022", nil, nil),
		Entry(nil, "warden-noble", linuxOptions{"ServiceManager": "systemd"}, nil),
		Entry(nil, "warden-trusty", linuxOptions{"UseDirectoryAsEphemeralDisk": true}, nil),
		Entry(nil, "kubernetes-2016", nil, nil),
		Entry(nil, "kubernetes-2018", nil, nil),
		Entry(nil, "openstack", linuxOptions{
			"PartitionerType": "parted", "CreatePartitionIfNoEphemeralDisk": true, "UseMonitIptablesFirewall": true,
		}, map[string]any{"UseServerName": true}),
		Entry(nil, "vsphere", linuxOptions{"PartitionerType": "parted", "UseMonitIptablesFirewall": true}, nil),
		Entry(nil, "aws", linuxOptions{
			"PartitionerType": "parted", "CreatePartitionIfNoEphemeralDisk": true, "ServiceManager": "systemd",
			"DiskIDTransformPattern": "^vol-(.+)$", "DiskIDTransformReplacement": "nvme-Amazon_Elastic_Block_Store_vol${1}",
		}, nil),
	)

	DescribeTable("is patched for any content of the object", func(original string) {
		merged := merge(original)
		var config struct {
			Platform       struct{ Linux linuxOptions }
			Infrastructure struct{ Settings struct{ Sources []any } }
		}
		Expect(json.Unmarshal([]byte(merged), &config)).To(Succeed(), merged)
		Expect(config.Platform.Linux).To(Equal(expectedOptions(nil)))
		Expect(config.Infrastructure.Settings.Sources).To(HaveLen(1))
	},
		Entry("no keys", `{}`),
		Entry("no options of the platform", `{"Platform": {}}`),
		Entry("values that are not objects", `{"Platform": {"Linux": null}, "Infrastructure": []}`),
		Entry("another source before the file",
			`{"Infrastructure": {"Settings": {"Sources": [{"Type": "HTTP"}, {"Type": "File", "SettingsPath": "/a"}]}}}`),
		Entry("a bracket in a string", `{"Infrastructure": {"Settings": {"Sources": [{"Type": "File", "SettingsPath": "/a]}"}]}}}`),
		Entry("keys with escapes", `{"\u0050latform": {"Linux": {"SkipDiskSetup": false}}}`),
		Entry("a duplicate key", `{"Platform": {"Linux": {"SkipDiskSetup": false, "SkipDiskSetup": false}}}`),
	)

	It("keeps other values unchanged", func() {
		const unrelated = `"a":[1,-2.5e+3,12345678901234567890,"\"}\\<",[],{},{"b":[null,true,false]}],"z":"\u00e9\ud83d\ude00","ünï":1.0`
		merged := merge("\n{" + unrelated + ",\t\"Platform\": {}}\n")
		for _, value := range []string{
			`"a":[1,-2.5e+3,12345678901234567890,"\"}\\<",[],{},{"b":[null,true,false]}]`, `"z":"\u00e9\ud83d\ude00"`, `"ünï":1.0`,
		} {
			Expect(merged).To(ContainSubstring(value))
		}
	})

	DescribeTable("is changed by a patch as in RFC 7396, appendix A", func(original, patch, expected string) {
		merged, err := mergePatch([]byte(original), []byte(patch))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(merged)).To(Equal(expected))
	},
		Entry(nil, `{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`),
		Entry(nil, `{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`),
		Entry(nil, `{"a":"b"}`, `{"a":null}`, `{}`),
		Entry(nil, `{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`),
		Entry(nil, `{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`),
		Entry(nil, `{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`),
		Entry(nil, `{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`),
		Entry(nil, `{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`),
		Entry(nil, `{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`),
		Entry(nil, `{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`),
	)

	DescribeTable("is not patched if the file is not an object", func(original, message string) {
		_, err := mergePatch([]byte(original), []byte(agentsettings.ConfigPatch))
		Expect(err).To(MatchError(HavePrefix(message)))
	},
		Entry("an empty file", "", "not valid JSON: "),
		Entry("an array", ` []`, "not a JSON object"),
		Entry("null", `null`, "not a JSON object"),
		Entry("an incomplete object", `{"Platform": {`, "not valid JSON: "),
		Entry("a trailing comma", `{"a": 1,}`, "not valid JSON: "),
		Entry("no comma between keys", `{"a": 1 "b": 2}`, "not valid JSON: "),
		Entry("a key without quotes", `{a: 1}`, "not valid JSON: "),
		Entry("an unterminated string", `{"a": "b}`, "not valid JSON: "),
		Entry("two documents", `{} {}`, "not valid JSON: "),
	)

	It("is not restored from the stemcell if the patch is damaged, or a file cannot be read", func() {
		root := newStemcellRoot()
		v := root.newTestVM(io.Discard)
		v.sys.Before = func(call, path string) error {
			if call == "read" && path == agentConfig {
				return unix.EIO
			}
			return nil
		}
		Expect(v.configureAgent(context.Background())).To(MatchError(unix.EIO))
		v = root.newTestVM(io.Discard)
		root.write("bosh/settings/agent.patch.json", "{")
		Expect(v.configureAgent(context.Background())).To(MatchError(HavePrefix("read /bosh/settings/agent.patch.json: not valid JSON: ")))
		Expect(root.read("var/vcap/bosh/agent.json")).To(ContainSubstring("systemd"))
	})
})

var _ = Describe("The URL of the API server", func() {
	const urlFile = "etc/bosh-kubernetes-cpi/api-server"
	var root fakeRoot
	BeforeEach(func() {
		root = newFakeRoot()
		root.write("var/run/secrets/kubernetes.io/serviceaccount/token", "token")
	})

	saveURL := func(host, port string) {
		GinkgoHelper()
		v := root.newTestVM(io.Discard, "KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port)
		Expect(v.saveAPIServerURL(context.Background())).To(Succeed())
	}

	It("is saved at each start of the VM, in a file that all users can read", func() {
		saveURL("10.96.0.1", "443")
		Expect(root.read(urlFile)).To(Equal("https://10.96.0.1:443\n"))
		saveURL("fd00::1", "6443")
		Expect(root.read(urlFile)).To(Equal("https://[fd00::1]:6443\n"))
		info, err := os.Stat(root.path(urlFile))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o644))
	})

	It("is removed if the Pod has no address of the API server", func() {
		saveURL("10.96.0.1", "443")
		saveURL("", "443")
		Expect(root.exists(urlFile)).To(BeFalse())
	})

	It("is removed if the VM has no service account token", func() {
		saveURL("10.96.0.1", "443")
		root.remove("var/run/secrets")
		saveURL("10.96.0.1", "443")
		Expect(root.exists(urlFile)).To(BeFalse())
	})

	It("is kept if the token cannot be examined", func() {
		saveURL("10.96.0.1", "443")
		v := root.newTestVM(io.Discard)
		v.sys.Before = func(string, string) error { return unix.EIO }
		Expect(v.saveAPIServerURL(context.Background())).To(MatchError(unix.EIO))
		Expect(root.exists(urlFile)).To(BeTrue())
	})
})
