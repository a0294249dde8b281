//go:build e2e

package e2e

import (
	"context"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// smallest are the capabilities without which a machine of a stemcell does not boot; docs/trust.md says what it can do with them.
var smallest = map[string][]string{
	"E2E_STEMCELL": {"SYS_ADMIN"},
	withSystemd:    {"SYS_ADMIN", "SYS_NICE"}, // the agent starts auditd, which asks for another priority
}

var _ = Describe("A machine that is not privileged, with the smallest capabilities", Label("machines"), func() {
	DescribeTable("boots, keeps what a restart keeps, and is given a disk as a directory",
		func(ctx context.Context, stemcell string) {
			w := newWorld(ctx)
			m := w.createMachineFrom(ctx, os.Getenv(stemcell), map[string]any{
				"security": map[string]any{"privileged": false, "capabilities": map[string]any{"add": smallest[stemcell]}},
			})
			Expect(m.run(ctx, "awk '/^CapBnd/ { print $2 }' /proc/1/status")).NotTo(HaveSuffix("000001ffffffffff"))
			disk := w.createDisk(ctx, 64, map[string]any{"attach": "bind"})
			m.attach(ctx, disk)
			m.run(ctx, "echo kept | tee /var/vcap/store/file >/var/vcap/data/marker; echo kept >/etc/changed")
			m.run(ctx, keeper)
			m.awaitJob(ctx)

			By("reboot_vm")
			w.must(ctx, "reboot_vm", m.cid)
			m.awaitAgent(ctx)
			m.awaitJob(ctx)
			Expect(m.run(ctx, "cat /var/vcap/store/file /var/vcap/data/marker /etc/changed /var/vcap/data/keeper.starts")).
				To(Equal("kept\nkept\nkept\nwith\nwith"))

			By("what it has not: devices, the node's kernel settings")
			device := w.createDisk(ctx, 64, onFilesystem)
			m.tell(ctx, "stop")
			m.detach(ctx, disk)
			w.must(ctx, "attach_disk", m.cid, device)
			_, err := m.try(ctx, "head -c 1 /dev/bosh/"+device)
			Expect(err).To(MatchError(ContainSubstring("Operation not permitted")))
			w.must(ctx, "detach_disk", m.cid, device)
			_, err = m.try(ctx, "echo 7 >/proc/sys/vm/swappiness")
			Expect(err).To(HaveOccurred())

			By("the disk in another machine, which is privileged")
			w.must(ctx, "delete_vm", m.cid)
			next := w.createMachineFrom(ctx, os.Getenv(stemcell), map[string]any{})
			next.attach(ctx, disk)
			Expect(next.run(ctx, "cat /var/vcap/store/file")).To(Equal("kept"))
		},
		stemcellKinds("extended"))
})
