//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	disksPerMode = 2
	attachCycles = 50 // how many times each disk is attached and detached
)

var _ = Describe("Persistent disks of both volume modes", Label("disks", "extended"), Serial, func() {
	// The disks are used at the same time: a busy node is slow to stop attachments, and the kubelet's sync period takes most of the time.
	It(fmt.Sprintf("keep their data over %d attachments each, and leave no devices or mounts", attachCycles), func(ctx context.Context) {
		env := newTestEnv(ctx)
		vm := env.createVM(ctx)
		checksums := map[string]string{}
		for _, properties := range slices.Repeat([]map[string]any{filesystemDisk, blockDisk}, disksPerMode) {
			disk := env.createDisk(ctx, largeDisk, properties)
			vm.attach(ctx, disk)
			checksums[disk] = vm.run(ctx, fillLarge)
			vm.run(ctx, "echo "+disk+" >/var/vcap/store/mark")
			vm.detach(ctx, disk)
		}
		// The kubelet unmounts a volume shortly after its Pod is deleted.
		Eventually(env.volumeLoopDevices).WithContext(ctx).Should(BeEmpty())
		previous, mounts := vm.identity(ctx), env.kubeletMounts(ctx)

		var cycles []func()
		for disk := range checksums {
			cycles = append(cycles, func() {
				readMark := strings.ReplaceAll("mkdir -p /mnt/DISK && mount /dev/bosh/DISK /mnt/DISK && cat /mnt/DISK/mark && umount /mnt/DISK", "DISK", disk)
				for range attachCycles {
					env.mustCall(ctx, "attach_disk", vm.cid, disk)
					Expect(vm.run(ctx, readMark)).To(Equal(disk))
					env.mustCall(ctx, "detach_disk", vm.cid, disk)
				}
			})
		}
		runConcurrently(cycles...)

		Expect(vm.identity(ctx)).To(Equal(previous))
		Eventually(env.volumeLoopDevices).WithContext(ctx).Should(BeEmpty())
		Eventually(env.kubeletMounts).WithContext(ctx).Should(Equal(mounts))
		Expect(vm.run(ctx, "ls -A /dev/bosh")).To(BeEmpty())
		for disk, checksum := range checksums {
			vm.attach(ctx, disk)
			Expect(vm.run(ctx, checkLarge)).To(Equal(checksum))
			vm.detach(ctx, disk)
		}
	}, NodeTimeout(2*longTest))
})
