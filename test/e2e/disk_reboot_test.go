//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/embedded"
)

// describeNodeReboots are the scenarios in which the node loses its power and boots again, with other numbers
// for its devices.
func describeNodeReboots(s *diskFixture) {
	for order, reboot := range map[string]struct{ kubeletFirst, runIsEmpty bool }{
		// A node whose /run outlives a boot, as none should, shows the old device nodes to its machines.
		"its runtime before its kubelet, over the old device nodes": {kubeletFirst: false, runIsEmpty: false},
		"its kubelet before its runtime":                            {kubeletFirst: true, runIsEmpty: true},
	} {
		It("is there before any job when its node boots, "+order, func(ctx context.Context) {
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
		It("is there before any job when its node, which is a computer, loses its power and boots", func(ctx context.Context) {
			s.expectSurvivesBoot(ctx, func() { Expect(s.powerCut(ctx)).To(Succeed()) })
		}, NodeTimeout(longTest))
	}
}

// expectSurvivesBoot has the machine run a job while its node boots, and expects the same machine afterwards, with the disk there
// before the job and nothing stacked.
func (s *diskFixture) expectSurvivesBoot(ctx context.Context, boot func()) {
	GinkgoHelper()
	s.vm.run(ctx, keeperJobScript)
	s.vm.waitForJob(ctx)
	s.vm.run(ctx, "sync") // a power cut takes what no one has had written out: here the job itself
	previous, loops, mounts, starts := s.vm.identity(ctx), s.volumeLoopDevices(ctx), s.kubeletMounts(ctx), s.jobStarts(ctx)

	boot()
	s.waitForRestart(ctx, s.vm.cid, previous.Restarts)
	s.vm.waitForAgent(ctx)
	s.vm.waitForJob(ctx)

	Expect(s.jobStarts(ctx)).To(And(HaveLen(len(starts)+1), HaveEach("with")))
	after := s.vm.identity(ctx)
	Expect([]string{after.UID, after.Address, after.Data}).To(Equal([]string{previous.UID, previous.Address, previous.Data}))
	Expect(s.volumeLoopDevices(ctx)).To(HaveLen(len(loops)), "loop devices stack")
	Expect(s.kubeletMounts(ctx)).To(Equal(mounts), "mounts stack")
	s.vm.callAgent(ctx, "stop")
	s.expectIntact(ctx)
	s.vm.callAgent(ctx, "start")
}

// deviceNumber is the major and minor number of the device that is the machine's persistent disk.
func (s *diskFixture) deviceNumber(ctx context.Context) string {
	GinkgoHelper()
	return s.vm.run(ctx, "findmnt --noheadings --output MAJ:MIN /var/vcap/store | tr -d ' '")
}

// jobStarts are the keeper's notes, one for each of its starts.
func (s *diskFixture) jobStarts(ctx context.Context) []string {
	GinkgoHelper()
	return strings.Fields(s.vm.run(ctx, "cat /var/vcap/data/keeper.starts"))
}

// occupyLoopDevice gives the loop device of this number to something else until the test ends.
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
