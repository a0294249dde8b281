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

// linux is the agent's own view of its options for the platform: see Config in agentsettings.
type linux map[string]any

// wanted are the options that every agent gets, and these.
func wanted(kept linux) linux {
	options := linux{
		"UsePreformattedPersistentDisk": true, "BindMountPersistentDisk": false, "SkipDiskSetup": true, "UseDefaultTmpDir": true,
		"DevicePathResolutionType": "",
	}
	maps.Copy(options, kept)
	return options
}

var _ = Describe("An agent's configuration", func() {
	var w world
	BeforeEach(func() { w = newWorld() })

	// changed is what configure_agent makes of an agent.json.
	changed := func(original []byte) string {
		GinkgoHelper()
		w.write("agent.json", string(original))
		w.write("patch.json", agentsettings.Config)
		status, said := w.call("json", `json merge "$root/agent.json" "$root/patch.json"`)
		Expect(status).To(BeZero(), said)
		return said
	}

	DescribeTable("is for this CPI's machines, and its stemcell's otherwise", func(stemcell string, kept linux, settings map[string]any) {
		original, err := os.ReadFile(filepath.Join("testdata/agents", stemcell+".json"))
		Expect(err).NotTo(HaveOccurred())
		if settings == nil {
			settings = map[string]any{}
		}
		settings["Sources"] = []any{map[string]any{"Type": "File", "SettingsPath": "/var/vcap/bosh/warden-cpi-agent-env.json"}}
		want, err := json.Marshal(map[string]any{"Platform": map[string]any{"Linux": wanted(kept)}, "Infrastructure": map[string]any{"Settings": settings}})
		Expect(err).NotTo(HaveOccurred())
		once := changed(original)
		Expect(once).To(MatchJSON(want))
		Expect(changed([]byte(once))).To(MatchJSON(want), "by the next start too")
	},
		Entry(nil, "warden-jammy", linux{"UseMonitIptablesFirewall": true}, nil),
		Entry(nil, "warden-jammy-2022", nil, nil),
		Entry(nil, "warden-noble", linux{"ServiceManager": "systemd"}, nil),
		Entry(nil, "warden-trusty", linux{"UseDirectoryAsEphemeralDisk": true}, nil),
		Entry(nil, "kubernetes-2016", nil, nil),
		Entry(nil, "kubernetes-2018", nil, nil),
		Entry(nil, "openstack", linux{"PartitionerType": "parted", "CreatePartitionIfNoEphemeralDisk": true, "UseMonitIptablesFirewall": true}, map[string]any{"UseServerName": true}),
		Entry(nil, "vsphere", linux{"PartitionerType": "parted", "UseMonitIptablesFirewall": true}, nil),
		Entry(nil, "aws", linux{
			"PartitionerType": "parted", "CreatePartitionIfNoEphemeralDisk": true, "ServiceManager": "systemd",
			"DiskIDTransformPattern": "^vol-(.+)$", "DiskIDTransformReplacement": "nvme-Amazon_Elastic_Block_Store_vol${1}",
		}, nil),
	)

	DescribeTable("is made of whatever a hash may hold", func(original string) {
		once := changed([]byte(original))
		var config struct {
			Platform       struct{ Linux linux }
			Infrastructure struct{ Settings struct{ Sources []any } }
		}
		Expect(json.Unmarshal([]byte(once), &config)).To(Succeed(), once)
		Expect(config.Platform.Linux).To(Equal(wanted(nil)))
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
		Expect(changed([]byte("\n{" + others + ",\t\"Platform\": {}}\n"))).To(ContainSubstring(others))
	})

	DescribeTable("fails to be made of what is no hash", func(original string) {
		w.write("agent.json", original)
		w.write("patch.json", agentsettings.Config)
		status, said := w.call("json", `json merge "$root/agent.json" "$root/patch.json"`)
		Expect(status).NotTo(BeZero())
		Expect(said).To(MatchRegexp(`^.*agent\.json is not JSON at byte \d+\n$`))
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
		_, said := w.call("json", `json merge "$root/agent.json" "$root/patch.json"`)
		Expect(said).To(HaveSuffix("agent.json cannot be read: No such file or directory\n"))
	})
})

var _ = Describe("The disks that the agent knows", func() {
	DescribeTable("are the names in its file, and nothing within", func(hints, disks string) {
		w := newWorld()
		w.write("persistent_disk_hints.json", hints)
		status, said := w.call("json store", "known_disks", "bosh="+w.root)
		Expect(status).To(BeZero())
		Expect(said).To(Equal(disks))
	},
		Entry("none", `{}`, ""),
		Entry("one", `{"disk-1":{"ID":"disk-1","DeviceID":"","VolumeID":"/dev/bosh/disk-1","Path":"/dev/bosh/disk-1"}}`, "disk-1\n"),
		Entry("two", `{"disk-1": {"ID": "disk-3"}, "disk-2": {"a": {"b": {}}}}`, "disk-1\ndisk-2\n"),
		Entry("with texts only", `{"disk-1": "/dev/bosh/disk-1", "disk-2": ""}`, "disk-1\ndisk-2\n"),
		Entry("with quotes and braces in texts", `{"disk-1": {"Path": "\"},{\"disk-3\": {"}, "disk-2": "\\"}`, "disk-1\ndisk-2\n"),
		Entry("with escapes in names", `{"disk-\u0031": {}, "a\/b\"c": {}}`, "disk-1\na/b\"c\n"),
		Entry("with other values", `{"disk-1": null, "disk-2": [{"disk-3": {}}], "disk-4": 5}`, "disk-1\ndisk-2\ndisk-4\n"),
	)

	DescribeTable("are not known", func(write func(world)) {
		w := newWorld()
		write(w)
		status, _ := w.call("json store", "known_disks", "bosh="+w.root)
		Expect(status).NotTo(BeZero())
	},
		Entry("without the file", func(world) {}),
		Entry("with an empty one", func(w world) { w.write("persistent_disk_hints.json", "") }),
		Entry("with one that was cut short", func(w world) { w.write("persistent_disk_hints.json", `{"disk-1": {"ID"`) }),
	)
})
