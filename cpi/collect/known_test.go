package collect

import (
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("ReadKnown", func() {
	// Outputs of the BOSH CLI 7.8, with fewer columns.
	const (
		vms = `{"Tables": [{"Content": "vms", "Header": {"instance": "Instance", "vm_cid": "VM CID"},
			"Rows": [{"instance": "web/0f", "vm_cid": "agent-1"}], "Notes": null}], "Blocks": null, "Lines": ["Using environment"]}`
		orphanedVMs = `{"Tables": [{"Content": "orphaned_vms", "Header": {"vm_cid": "VM CID"}, "Rows": [{"vm_cid": "agent-2"}]}], "Lines": null}`
		instances   = `{"Tables": [{"Content": "instances", "Header": {"vm_cid": "VM CID", "disk_cids": "Disk CIDs"},
			"Rows": [{"vm_cid": "agent-1", "disk_cids": "disk-1\ndisk-2"}]}], "Lines": null}`
		noDetails     = `{"Tables": [{"Content": "instances", "Header": {"instance": "Instance"}, "Rows": [{"instance": "web/0f"}]}], "Lines": null}`
		disks         = `{"Tables": [{"Content": "disks", "Header": {"disk_cid": "Disk CID"}, "Rows": [{"disk_cid": "disk-3"}]}], "Lines": null}`
		noDeployments = `{"Tables": null, "Blocks": null, "Lines": ["Succeeded"]}`
	)

	It("returns the CIDs of all VMs and disks", func() {
		known, err := ReadKnown(strings.NewReader(vms + orphanedVMs + instances + disks))
		Expect(err).NotTo(HaveOccurred())
		Expect(slices.Collect(maps.Keys(known))).To(ContainElements("agent-1", "agent-2", "disk-1", "disk-2", "disk-3"))
	})

	It("accepts a director without deployments", func() {
		known, err := ReadKnown(strings.NewReader(noDeployments + orphanedVMs + noDeployments + disks))
		Expect(err).NotTo(HaveOccurred())
		Expect(known).To(HaveLen(2))
	})

	DescribeTable("fails with the commands of incomplete outputs for", func(message string, outputs ...string) {
		_, err := ReadKnown(strings.NewReader(strings.Join(outputs, "\n")))
		Expect(err).To(MatchError(HaveSuffix(message)))
	},
		Entry("no outputs", "bosh disks --orphaned --json, bosh instances --details --json, bosh orphaned-vms --json, bosh vms --json"),
		Entry("no orphaned disks", "incomplete: bosh disks --orphaned --json", vms, orphanedVMs, instances),
		Entry("no orphaned VMs", "incomplete: bosh orphaned-vms --json", vms, instances, disks),
		Entry("no VMs", "incomplete: bosh instances --details --json, bosh vms --json", orphanedVMs, instances, disks),
		Entry("instances without disks", "incomplete: bosh instances --details --json, bosh vms --json", vms, orphanedVMs, noDetails, disks),
		Entry("failed commands", "bosh orphaned-vms --json, bosh vms --json", noDeployments, noDeployments, noDeployments, noDeployments),
		Entry("text", "invalid character 'U' looking for beginning of value", "Using environment"),
	)
})
