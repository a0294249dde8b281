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
	"bosh-kubernetes-cpi/test/embedded"
)

// describeNodeReboots specifies what happens to a disk when the node loses power and boots with other device numbers.
func describeNodeReboots(s *diskFixture) {
	for order, reboot := range map[string]struct{ kubeletFirst, runIsEmpty bool }{
		// If /run survives the boot, which it should not, VMs see the old device nodes.
		"the runtime before the kubelet, with the old device nodes": {kubeletFirst: false, runIsEmpty: false},
		"the kubelet before the runtime":                            {kubeletFirst: true, runIsEmpty: true},
	} {
		It("is mounted before any job starts when its node boots, "+order, func(ctx context.Context) {
			number := s.deviceNumber(ctx)
			s.expectSurvivesBoot(ctx, func() {
				Expect(s.embedded.Nodes[0].PowerOff(ctx)).To(Succeed())
				occupyLoopDevice(ctx, number)
				if reboot.runIsEmpty {
					Expect(os.RemoveAll(filepath.Join(manifest.NodeDirectory, s.namespace))).To(Succeed())
				}
				Expect(s.embedded.Nodes[0].PowerOn(ctx, reboot.kubeletFirst)).To(Succeed())
			})
			Expect(s.deviceNumber(ctx)).NotTo(Equal(number))
		}, Label("extended", labelSharedKernel), NodeTimeout(longTest))
	}
	if onVMNode {
		It("is mounted before any job starts when its VM node loses power and boots", func(ctx context.Context) {
			s.expectSurvivesBoot(ctx, func() { Expect(s.powerCut(ctx)).To(Succeed()) })
		}, NodeTimeout(longTest))
	}
}

// expectSurvivesBoot boots the node of a VM with a job, and expects the same VM afterwards, with the disk mounted before the job
// starts, and without additional mounts or loop devices.
func (s *diskFixture) expectSurvivesBoot(ctx context.Context, boot func()) {
	GinkgoHelper()
	s.vm.run(ctx, keeperJobScript)
	s.vm.waitForJob(ctx)
	s.vm.run(ctx, "sync") // a power cut loses unwritten data, here the job's files
	previous, loops, mounts, starts := s.vm.identity(ctx), s.volumeLoopDevices(ctx), s.kubeletMounts(ctx), s.jobStarts(ctx)

	boot()
	s.waitForRestart(ctx, s.vm.cid, previous.Restarts)
	s.vm.waitForAgent(ctx)
	s.vm.waitForJob(ctx)

	Expect(s.jobStarts(ctx)).To(And(HaveLen(len(starts)+1), HaveEach("with")))
	after := s.vm.identity(ctx)
	Expect([]string{after.UID, after.Address, after.Data}).To(Equal([]string{previous.UID, previous.Address, previous.Data}))
	Expect(s.volumeLoopDevices(ctx)).To(HaveLen(len(loops)), "loop devices accumulate")
	Expect(s.kubeletMounts(ctx)).To(Equal(mounts), "mounts accumulate")
	s.vm.callAgent(ctx, "stop")
	s.expectIntact(ctx)
	s.vm.callAgent(ctx, "start")
}

// deviceNumber returns the major and minor number of the VM's persistent disk.
func (s *diskFixture) deviceNumber(ctx context.Context) string {
	GinkgoHelper()
	return s.vm.run(ctx, "findmnt --noheadings --output MAJ:MIN /var/vcap/store | tr -d ' '")
}

// jobStarts returns what the job "keeper" has recorded at each start.
func (s *diskFixture) jobStarts(ctx context.Context) []string {
	GinkgoHelper()
	return strings.Fields(s.vm.run(ctx, "cat /var/vcap/data/keeper.starts"))
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
