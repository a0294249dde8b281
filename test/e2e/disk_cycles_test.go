//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// cycles of attaching and detaching, for each kind of claim.
const cycles = 100

var _ = Describe("Persistent disks on both kinds of claims", Label("disks", "extended"), Serial, func() {
	// Both at once: what takes the time is the kubelet's rounds, and neither may disturb the other.
	It(fmt.Sprintf("are the same after %d attachments of each, which leave nothing behind", cycles), func(ctx context.Context) {
		w := newWorld(ctx)
		m := w.createMachine(ctx)
		checksums := map[string]string{}
		for _, properties := range []map[string]any{onFilesystem, onBlock} {
			disk := w.createDisk(ctx, largeDisk, properties)
			m.attach(ctx, disk)
			checksums[disk] = m.run(ctx, fillLarge)
			m.run(ctx, "echo "+disk+" >/var/vcap/store/mark")
			m.detach(ctx, disk)
		}
		before, loops, mounts := m.identity(ctx), w.devices(ctx), w.mounts(ctx)

		var both []func()
		for disk := range checksums {
			both = append(both, func() {
				look := strings.ReplaceAll("mkdir -p /mnt/DISK && mount /dev/bosh/DISK /mnt/DISK && cat /mnt/DISK/mark && umount /mnt/DISK", "DISK", disk)
				for range cycles {
					w.must(ctx, "attach_disk", m.cid, disk)
					Expect(m.run(ctx, look)).To(Equal(disk))
					w.must(ctx, "detach_disk", m.cid, disk)
				}
			})
		}
		atOnce(both...)

		Expect(m.identity(ctx)).To(Equal(before))
		// The kubelet unmounts a volume a moment after its Pod is gone.
		Eventually(w.devices).WithContext(ctx).Should(ConsistOf(loops))
		Eventually(w.mounts).WithContext(ctx).Should(Equal(mounts))
		Expect(m.run(ctx, "ls -A /dev/bosh")).To(BeEmpty())
		for disk, checksum := range checksums {
			m.attach(ctx, disk)
			Expect(m.run(ctx, checkLarge)).To(Equal(checksum))
			m.detach(ctx, disk)
		}
	}, NodeTimeout(2*longTest))
})
