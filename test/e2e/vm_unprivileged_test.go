//go:build e2e

package e2e

import (
	"context"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// minimalCapabilities are the additional capabilities that VMs of a stemcell require to boot. docs/explanation/security.md lists what they allow.
var minimalCapabilities = map[string][]string{
	"E2E_STEMCELL": {"SYS_ADMIN"},
	withSystemd:    {"SYS_ADMIN", "SYS_NICE"}, // the agent starts auditd, which changes its priority
}

var _ = Describe("An unprivileged VM with minimal capabilities", Label("vms"), func() {
	DescribeTable("boots, keeps its data over a restart, and can have a disk with disk_strategy: recreate",
		func(ctx context.Context, stemcell string) {
			env := newTestEnv(ctx)
			vm := env.createVMFromStemcell(ctx, os.Getenv(stemcell), map[string]any{
				"security":      map[string]any{"privileged": false, "capabilities": map[string]any{"add": minimalCapabilities[stemcell]}},
				"disk_strategy": "recreate", "ephemeral_disk": 512,
			})
			Expect(vm.run(ctx, "awk '/^CapBnd/ { print $2 }' /proc/1/status")).NotTo(HaveSuffix("000001ffffffffff"))
			disk := env.createDisk(ctx, 64, filesystemDisk)
			vm.attach(ctx, disk)
			vm.run(ctx, "echo kept | tee /var/vcap/store/file >/var/vcap/data/marker; echo kept >/etc/changed")
			vm.run(ctx, keeperJobScript)
			vm.waitForJob(ctx)

			By("rebooting the VM")
			env.mustCall(ctx, "reboot_vm", vm.cid)
			vm.waitForAgent(ctx)
			vm.waitForJob(ctx)
			Expect(vm.run(ctx, "cat /var/vcap/store/file /var/vcap/data/marker /etc/changed /var/vcap/data/keeper.starts")).
				To(Equal("kept\nkept\nkept\nwith\nwith"))

			By("failing to change the node's kernel settings")
			_, err := vm.tryRun(ctx, "echo 7 >/proc/sys/vm/swappiness")
			Expect(err).To(HaveOccurred())

			By("attaching the disk to a privileged VM")
			env.mustCall(ctx, "delete_vm", vm.cid)
			next := env.createVMFromStemcell(ctx, os.Getenv(stemcell), map[string]any{"disk_strategy": "recreate", "ephemeral_disk": 512})
			next.attach(ctx, disk)
			Expect(next.run(ctx, "cat /var/vcap/store/file")).To(Equal("kept"))
		},
		stemcellEntries("extended"))
})
