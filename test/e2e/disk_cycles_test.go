//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// attachCycles of attaching and detaching, for each kind of claim.
const attachCycles = 100

var _ = Describe("Persistent disks on both kinds of claims", Label("disks", "extended"), Serial, func() {
	// Both at once: what takes the time is the kubelet's rounds, and neither may disturb the other.
	It(fmt.Sprintf("are the same after %d attachments of each, which leave nothing behind", attachCycles), func(ctx context.Context) {
		env := newTestEnv(ctx)
		vm := env.createVM(ctx)
		checksums := map[string]string{}
		for _, properties := range []map[string]any{filesystemDisk, blockDisk} {
			disk := env.createDisk(ctx, largeDisk, properties)
			vm.attach(ctx, disk)
			checksums[disk] = vm.run(ctx, fillLarge)
			vm.run(ctx, "echo "+disk+" >/var/vcap/store/mark")
			vm.detach(ctx, disk)
		}
		previous, loops, mounts := vm.identity(ctx), env.volumeLoopDevices(ctx), env.kubeletMounts(ctx)

		var both []func()
		for disk := range checksums {
			both = append(both, func() {
				readMark := strings.ReplaceAll("mkdir -p /mnt/DISK && mount /dev/bosh/DISK /mnt/DISK && cat /mnt/DISK/mark && umount /mnt/DISK", "DISK", disk)
				for range attachCycles {
					env.mustCall(ctx, "attach_disk", vm.cid, disk)
					Expect(vm.run(ctx, readMark)).To(Equal(disk))
					env.mustCall(ctx, "detach_disk", vm.cid, disk)
				}
			})
		}
		runConcurrently(both...)

		Expect(vm.identity(ctx)).To(Equal(previous))
		// The kubelet unmounts a volume a moment after its Pod is gone.
		Eventually(env.volumeLoopDevices).WithContext(ctx).Should(ConsistOf(loops))
		Eventually(env.kubeletMounts).WithContext(ctx).Should(Equal(mounts))
		Expect(vm.run(ctx, "ls -A /dev/bosh")).To(BeEmpty())
		for disk, checksum := range checksums {
			vm.attach(ctx, disk)
			Expect(vm.run(ctx, checkLarge)).To(Equal(checksum))
			vm.detach(ctx, disk)
		}
	}, NodeTimeout(2*longTest))
})
