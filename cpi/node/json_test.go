package node_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

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
	var root fakeRoot
	BeforeEach(func() { root = newFakeRoot() })

	// mergePatch returns an agent.json with the patch that configure_agent applies.
	mergePatch := func(original []byte) string {
		GinkgoHelper()
		root.write("agent.json", string(original))
		root.write("patch.json", agentsettings.ConfigPatch)
		status, output := root.callFunction("json", `json merge "$root/agent.json" "$root/patch.json"`)
		Expect(status).To(BeZero(), output)
		return output
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
		merged := mergePatch(original)
		Expect(merged).To(MatchJSON(want))
		Expect(mergePatch([]byte(merged))).To(MatchJSON(want), "by the next start, too")
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
		merged := mergePatch([]byte(original))
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
		const unrelated = `"a": [1, -2.5e+3, "\"}\\", [], {}, {"b": [null, true, false]}], "ünï": "\u00e9\ud83d\ude00"`
		Expect(mergePatch([]byte("\n{" + unrelated + ",\t\"Platform\": {}}\n"))).To(ContainSubstring(unrelated))
	})

	DescribeTable("is not patched if the file is not an object", func(original string) {
		root.write("agent.json", original)
		root.write("patch.json", agentsettings.ConfigPatch)
		status, output := root.callFunction("json", `json merge "$root/agent.json" "$root/patch.json"`)
		Expect(status).NotTo(BeZero())
		Expect(output).To(MatchRegexp(`^.*agent\.json is not valid JSON at byte \d+\n$`))
	},
		Entry("an empty file", ""),
		Entry("an array", `[]`),
		Entry("an incomplete object", `{"Platform": {`),
		Entry("a trailing comma", `{"a": 1,}`),
		Entry("no comma between keys", `{"a": 1 "b": 2}`),
		Entry("a key without quotes", `{a: 1}`),
		Entry("an unterminated string", `{"a": "b}`),
		Entry("two documents", `{} {}`),
	)

	It("is not patched if the file does not exist", func() {
		_, output := root.callFunction("json", `json merge "$root/agent.json" "$root/patch.json"`)
		Expect(output).To(MatchRegexp(`^cannot read .*agent\.json: No such file or directory\n$`))
	})
})

var _ = Describe("agent_disks", func() {
	DescribeTable("prints the top-level keys", func(hints, disks string) {
		root := newFakeRoot()
		root.write("persistent_disk_hints.json", hints)
		status, output := root.callFunction("json persistent-disks", "agent_disks", "agent_dir="+root.root)
		Expect(status).To(BeZero())
		Expect(output).To(Equal(disks))
	},
		Entry("of an empty object", `{}`, ""),
		Entry("of one disk", `{"disk-1":{"ID":"disk-1","DeviceID":"","VolumeID":"/dev/bosh/disk-1","Path":"/dev/bosh/disk-1"}}`, "disk-1\n"),
		Entry("of two disks", `{"disk-1": {"ID": "disk-3"}, "disk-2": {"a": {"b": {}}}}`, "disk-1\ndisk-2\n"),
		Entry("with strings as values", `{"disk-1": "/dev/bosh/disk-1", "disk-2": ""}`, "disk-1\ndisk-2\n"),
		Entry("with quotes and braces in strings", `{"disk-1": {"Path": "\"},{\"disk-3\": {"}, "disk-2": "\\"}`, "disk-1\ndisk-2\n"),
		Entry("with escapes in keys", `{"disk-\u0031": {}, "a\/b\"c": {}}`, "disk-1\na/b\"c\n"),
		Entry("with other values", `{"disk-1": null, "disk-2": [{"disk-3": {}}], "disk-4": 5}`, "disk-1\ndisk-2\ndisk-4\n"),
	)

	DescribeTable("fails", func(write func(fakeRoot)) {
		root := newFakeRoot()
		write(root)
		status, _ := root.callFunction("json persistent-disks", "agent_disks", "agent_dir="+root.root)
		Expect(status).NotTo(BeZero())
	},
		Entry("without the file", func(fakeRoot) {}),
		Entry("with an empty file", func(root fakeRoot) { root.write("persistent_disk_hints.json", "") }),
		Entry("with an incomplete file", func(root fakeRoot) { root.write("persistent_disk_hints.json", `{"disk-1": {"ID"`) }),
	)
})
