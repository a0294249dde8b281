//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// describeNodeReboots specifies what happens to a disk when the node loses power and boots with other device numbers.
func describeNodeReboots(f *diskFixture) {
	for order, reboot := range map[string]struct{ kubeletFirst, runIsEmpty bool }{
		// /run should not survive the boot. If it does, VMs see the old device nodes.
		"the runtime before the kubelet, with the old device nodes": {kubeletFirst: false, runIsEmpty: false},
		"the kubelet before the runtime":                            {kubeletFirst: true, runIsEmpty: true},
	} {
		It("is mounted before any job starts when its node boots, "+order, func(ctx context.Context) {
			number := f.deviceNumber(ctx)
			f.expectSurvivesBoot(ctx, func() {
				Expect(f.embedded.Nodes[0].PowerOff(ctx)).To(Succeed())
				occupyLoopDevice(ctx, number)
				if reboot.runIsEmpty {
					Expect(os.RemoveAll(filepath.Join(manifest.NodeDirectory, f.namespace))).To(Succeed())
				}
				Expect(f.embedded.Nodes[0].PowerOn(ctx, reboot.kubeletFirst)).To(Succeed())
			})
			Expect(f.deviceNumber(ctx)).NotTo(Equal(number))
		}, Label("extended", labelSharedKernel), NodeTimeout(longTest))
	}
	if onVMNode {
		It("is mounted before any job starts when its VM node loses power and boots", func(ctx context.Context) {
			f.expectSurvivesBoot(ctx, func() { Expect(f.powerCut(ctx)).To(Succeed()) })
		}, NodeTimeout(longTest))
	}
}

// expectSurvivesBoot installs a job in the VM, and boots the node. It expects the same VM afterwards, with the disk mounted before the
// job starts, and without additional mounts or loop devices.
func (f *diskFixture) expectSurvivesBoot(ctx context.Context, boot func()) {
	GinkgoHelper()
	f.vm.run(ctx, keeperJobScript)
	f.vm.waitForJob(ctx)
	f.vm.run(ctx, "sync") // a power cut loses unwritten data, here the job's files
	previous, loops, mounts, starts := f.vm.identity(ctx), f.volumeLoopDevices(ctx), f.kubeletMounts(ctx), f.jobStarts(ctx)

	boot()
	f.waitForRestart(ctx, f.vm.cid, previous.Restarts)
	f.vm.waitForAgent(ctx)
	f.vm.waitForJob(ctx)

	Expect(f.jobStarts(ctx)).To(And(HaveLen(len(starts)+1), HaveEach("with")))
	after := f.vm.identity(ctx)
	Expect([]string{after.UID, after.Address, after.Data}).To(Equal([]string{previous.UID, previous.Address, previous.Data}))
	Expect(f.volumeLoopDevices(ctx)).To(HaveLen(len(loops)), "loop devices accumulate")
	Expect(f.kubeletMounts(ctx)).To(Equal(mounts), "mounts accumulate")
	f.vm.callAgent(ctx, "stop")
	f.expectIntact(ctx)
	f.vm.callAgent(ctx, "start")
}

// deviceNumber returns the major and minor number of the VM's persistent disk.
func (f *diskFixture) deviceNumber(ctx context.Context) string {
	GinkgoHelper()
	return f.vm.run(ctx, "findmnt --noheadings --output MAJ:MIN /var/vcap/store | tr -d ' '")
}

// jobStarts returns what the job "keeper" recorded at each start.
func (f *diskFixture) jobStarts(ctx context.Context) []string {
	GinkgoHelper()
	return strings.Fields(f.vm.run(ctx, "cat /var/vcap/data/keeper.starts"))
}

// occupyLoopDevice uses the loop device with this number for another file until the test finishes.
func occupyLoopDevice(ctx context.Context, number string) {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "other")
	Expect(os.WriteFile(file, make([]byte, 1<<20), 0o600)).To(Succeed())
	loop := "/dev/loop" + strings.TrimPrefix(number, "7:")
	_, err := embedded.Run(ctx, "losetup", loop, file)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		_, err := embedded.Run(ctx, "losetup", "--detach", loop)
		Expect(err).NotTo(HaveOccurred())
	})
}
