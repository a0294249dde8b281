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

// survivesReboots are the scenarios in which the node loses its power and boots again, with other numbers
// for its devices.
func survivesReboots(s *subject) {
	for order, reboot := range map[string]struct{ kubeletFirst, runIsEmpty bool }{
		// A node whose /run outlives a boot, as none should, shows the old device nodes to its machines.
		"its runtime before its kubelet, over the old device nodes": {kubeletFirst: false, runIsEmpty: false},
		"its kubelet before its runtime":                            {kubeletFirst: true, runIsEmpty: true},
	} {
		It("is there before any job when its node boots, "+order, func(ctx context.Context) {
			number := s.number(ctx)
			s.bootsAsItWas(ctx, func() {
				Expect(s.embedded.Nodes[0].PowerOff(ctx)).To(Succeed())
				occupy(ctx, number)
				if reboot.runIsEmpty {
					Expect(os.RemoveAll(filepath.Join(manifest.NodeDirectory, s.namespace))).To(Succeed())
				}
				Expect(s.embedded.Nodes[0].PowerOn(ctx, reboot.kubeletFirst)).To(Succeed())
			})
			Expect(s.number(ctx)).NotTo(Equal(number))
		}, Label("extended", thisMachine), NodeTimeout(longTest))
	}
	if onVMNode {
		It("is there before any job when its node, which is a computer, loses its power and boots", func(ctx context.Context) {
			s.bootsAsItWas(ctx, func() { Expect(s.powerCut(ctx)).To(Succeed()) })
		}, NodeTimeout(longTest))
	}
}

// bootsAsItWas has the machine run a job while its node boots, and expects the same machine afterwards, with the disk there
// before the job and nothing stacked.
func (s *subject) bootsAsItWas(ctx context.Context, boot func()) {
	GinkgoHelper()
	s.m.run(ctx, keeper)
	s.m.awaitJob(ctx)
	s.m.run(ctx, "sync") // a power cut takes what no one has had written out: here the job itself
	before, loops, mounts, starts := s.m.identity(ctx), s.devices(ctx), s.mounts(ctx), s.starts(ctx)

	boot()
	s.restarted(ctx, s.m.cid, before.Restarts)
	s.m.awaitAgent(ctx)
	s.m.awaitJob(ctx)

	Expect(s.starts(ctx)).To(And(HaveLen(len(starts)+1), HaveEach("with")))
	after := s.m.identity(ctx)
	Expect([]string{after.UID, after.Address, after.Data}).To(Equal([]string{before.UID, before.Address, before.Data}))
	Expect(s.devices(ctx)).To(HaveLen(len(loops)), "loop devices stack")
	Expect(s.mounts(ctx)).To(Equal(mounts), "mounts stack")
	s.m.tell(ctx, "stop")
	s.intact(ctx)
	s.m.tell(ctx, "start")
}

// number is the major and minor number of the device that is the machine's persistent disk.
func (s *subject) number(ctx context.Context) string {
	GinkgoHelper()
	return s.m.run(ctx, "findmnt --noheadings --output MAJ:MIN /var/vcap/store | tr -d ' '")
}

// starts are the keeper's notes, one for each of its starts.
func (s *subject) starts(ctx context.Context) []string {
	GinkgoHelper()
	return strings.Fields(s.m.run(ctx, "cat /var/vcap/data/keeper.starts"))
}

// occupy gives the loop device of this number to something else until the test ends.
func occupy(ctx context.Context, number string) {
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
