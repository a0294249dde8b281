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

// linuxOptions is the agent's own view of its options for the platform: see Config in agentsettings.
type linuxOptions map[string]any

// wantedOptions are the options that every agent gets, and these.
func wantedOptions(extra linuxOptions) linuxOptions {
	options := linuxOptions{
		"UsePreformattedPersistentDisk": true, "BindMountPersistentDisk": false, "SkipDiskSetup": true, "UseDefaultTmpDir": true,
		"DevicePathResolutionType": "",
	}
	maps.Copy(options, extra)
	return options
}

var _ = Describe("An agent's configuration", func() {
	var w fakeRoot
	BeforeEach(func() { w = newFakeRoot() })

	// changed is what configure_agent makes of an agent.json.
	mergePatch := func(original []byte) string {
		GinkgoHelper()
		w.write("agent.json", string(original))
		w.write("patch.json", agentsettings.ConfigPatch)
		status, output := w.callFunction("json", `json merge "$root/agent.json" "$root/patch.json"`)
		Expect(status).To(BeZero(), output)
		return output
	}

	DescribeTable("is for this CPI's machines, and its stemcell's otherwise", func(stemcell string, extra linuxOptions, settings map[string]any) {
		original, err := os.ReadFile(filepath.Join("testdata/agents", stemcell+".json"))
		Expect(err).NotTo(HaveOccurred())
		if settings == nil {
			settings = map[string]any{}
		}
		settings["Sources"] = []any{map[string]any{"Type": "File", "SettingsPath": "/var/vcap/bosh/warden-cpi-agent-env.json"}}
		want, err := json.Marshal(map[string]any{"Platform": map[string]any{"Linux": wantedOptions(extra)}, "Infrastructure": map[string]any{"Settings": settings}})
		Expect(err).NotTo(HaveOccurred())
		merged := mergePatch(original)
		Expect(merged).To(MatchJSON(want))
		Expect(mergePatch([]byte(merged))).To(MatchJSON(want), "by the next start too")
	},
		Entry(nil, "warden-jammy", linuxOptions{"UseMonitIptablesFirewall": true}, nil),
		Entry(nil, "warden-jammy-2022", nil, nil),
		Entry(nil, "warden-noble", linuxOptions{"ServiceManager": "systemd"}, nil),
		Entry(nil, "warden-trusty", linuxOptions{"UseDirectoryAsEphemeralDisk": true}, nil),
		Entry(nil, "kubernetes-2016", nil, nil),
		Entry(nil, "kubernetes-2018", nil, nil),
		Entry(nil, "openstack", linuxOptions{"PartitionerType": "parted", "CreatePartitionIfNoEphemeralDisk": true, "UseMonitIptablesFirewall": true}, map[string]any{"UseServerName": true}),
		Entry(nil, "vsphere", linuxOptions{"PartitionerType": "parted", "UseMonitIptablesFirewall": true}, nil),
		Entry(nil, "aws", linuxOptions{
			"PartitionerType": "parted", "CreatePartitionIfNoEphemeralDisk": true, "ServiceManager": "systemd",
			"DiskIDTransformPattern": "^vol-(.+)$", "DiskIDTransformReplacement": "nvme-Amazon_Elastic_Block_Store_vol${1}",
		}, nil),
	)

	DescribeTable("is made of whatever a hash may hold", func(original string) {
		merged := mergePatch([]byte(original))
		var config struct {
			Platform       struct{ Linux linuxOptions }
			Infrastructure struct{ Settings struct{ Sources []any } }
		}
		Expect(json.Unmarshal([]byte(merged), &config)).To(Succeed(), merged)
		Expect(config.Platform.Linux).To(Equal(wantedOptions(nil)))
		Expect(config.Infrastructure.Settings.Sources).To(HaveLen(1))
	},
		Entry("nothing", `{}`),
		Entry("nothing of the platform", `{"Platform": {}}`),
		Entry("what is no hash", `{"Platform": {"Linux": null}, "Infrastructure": []}`),
		Entry("another source before that of a file", `{"Infrastructure": {"Settings": {"Sources": [{"Type": "HTTP"}, {"Type": "File", "SettingsPath": "/a"}]}}}`),
		Entry("a bracket in a text", `{"Infrastructure": {"Settings": {"Sources": [{"Type": "File", "SettingsPath": "/a]}"}]}}}`),
		Entry("names written otherwise", `{"\u0050latform": {"Linux": {"SkipDiskSetup": false}}}`),
		Entry("a name twice", `{"Platform": {"Linux": {"SkipDiskSetup": false, "SkipDiskSetup": false}}}`),
	)

	It("keeps every other value as it is written", func() {
		const others = `"a": [1, -2.5e+3, "\"}\\", [], {}, {"b": [null, true, false]}], "ünï": "\u00e9\ud83d\ude00"`
		Expect(mergePatch([]byte("\n{" + others + ",\t\"Platform\": {}}\n"))).To(ContainSubstring(others))
	})

	DescribeTable("fails to be made of what is no hash", func(original string) {
		w.write("agent.json", original)
		w.write("patch.json", agentsettings.ConfigPatch)
		status, output := w.callFunction("json", `json merge "$root/agent.json" "$root/patch.json"`)
		Expect(status).NotTo(BeZero())
		Expect(output).To(MatchRegexp(`^.*agent\.json is not JSON at byte \d+\n$`))
	},
		Entry("an empty file", ""),
		Entry("a list", `[]`),
		Entry("no end", `{"Platform": {`),
		Entry("a comma too many", `{"a": 1,}`),
		Entry("no comma", `{"a": 1 "b": 2}`),
		Entry("a name that is none", `{a: 1}`),
		Entry("a text without an end", `{"a": "b}`),
		Entry("two documents", `{} {}`),
	)

	It("says which file is not there", func() {
		_, output := w.callFunction("json", `json merge "$root/agent.json" "$root/patch.json"`)
		Expect(output).To(HaveSuffix("agent.json cannot be read: No such file or directory\n"))
	})
})

var _ = Describe("The disks that the agent knows", func() {
	DescribeTable("are the names in its file, and nothing within", func(hints, disks string) {
		w := newFakeRoot()
		w.write("persistent_disk_hints.json", hints)
		status, output := w.callFunction("json store", "known_disks", "bosh="+w.root)
		Expect(status).To(BeZero())
		Expect(output).To(Equal(disks))
	},
		Entry("none", `{}`, ""),
		Entry("one", `{"disk-1":{"ID":"disk-1","DeviceID":"","VolumeID":"/dev/bosh/disk-1","Path":"/dev/bosh/disk-1"}}`, "disk-1\n"),
		Entry("two", `{"disk-1": {"ID": "disk-3"}, "disk-2": {"a": {"b": {}}}}`, "disk-1\ndisk-2\n"),
		Entry("with texts only", `{"disk-1": "/dev/bosh/disk-1", "disk-2": ""}`, "disk-1\ndisk-2\n"),
		Entry("with quotes and braces in texts", `{"disk-1": {"Path": "\"},{\"disk-3\": {"}, "disk-2": "\\"}`, "disk-1\ndisk-2\n"),
		Entry("with escapes in names", `{"disk-\u0031": {}, "a\/b\"c": {}}`, "disk-1\na/b\"c\n"),
		Entry("with other values", `{"disk-1": null, "disk-2": [{"disk-3": {}}], "disk-4": 5}`, "disk-1\ndisk-2\ndisk-4\n"),
	)

	DescribeTable("are not known", func(write func(fakeRoot)) {
		w := newFakeRoot()
		write(w)
		status, _ := w.callFunction("json store", "known_disks", "bosh="+w.root)
		Expect(status).NotTo(BeZero())
	},
		Entry("without the file", func(fakeRoot) {}),
		Entry("with an empty one", func(w fakeRoot) { w.write("persistent_disk_hints.json", "") }),
		Entry("with one that was cut short", func(w fakeRoot) { w.write("persistent_disk_hints.json", `{"disk-1": {"ID"`) }),
	)
})
