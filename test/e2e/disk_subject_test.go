//go:build e2e

package e2e

import (
	"context"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/embedded"
)

// subject is a disk with a large file, attached to a machine: one for many scenarios, each of which has
// to leave it so.
type subject struct {
	*world
	m        *machine
	disk     string
	checksum string // of the large file
}

// The large file is read from the disk, and not from what the node remembers of it.
const (
	fillLarge  = `dd if=/dev/urandom of=/var/vcap/store/data bs=4M count=256 conv=fsync status=none && ` + checkLarge
	checkLarge = `mountpoint -q /var/vcap/store && dd if=/var/vcap/store/data bs=4M iflag=direct status=none | b2sum`
)

func (s *subject) prepare(ctx context.Context, properties map[string]any) {
	GinkgoHelper()
	s.world = newWorld(ctx)
	s.m = s.createMachine(ctx)
	s.disk = s.createDisk(ctx, 1280, properties)
	s.m.attach(ctx, s.disk)
	s.checksum = s.m.run(ctx, fillLarge)
	s.m.run(ctx, "echo "+s.disk+" >/var/vcap/store/mark")
}

// intact checks the data, and that the disk can be taken away and given back.
func (s *subject) intact(ctx context.Context) {
	GinkgoHelper()
	Expect(s.m.run(ctx, checkLarge)).To(Equal(s.checksum))
	s.m.detach(ctx, s.disk)
	s.m.attach(ctx, s.disk)
	Expect(s.m.run(ctx, "cat /var/vcap/store/mark")).To(Equal(s.disk))
}

// atOnce does all of it at the same time.
func (s *subject) atOnce(ctx context.Context, actions ...func()) {
	var all sync.WaitGroup
	for _, act := range actions {
		all.Go(func() {
			defer GinkgoRecover()
			act()
		})
	}
	all.Wait()
}

// node is the one that the machine runs on.
func (s *subject) node() *embedded.Node { return s.embedded.Nodes[0] }

// devices are the loop devices of the node's volumes.
func (s *subject) devices(ctx context.Context) []string {
	GinkgoHelper()
	loops, err := s.node().Loops(ctx)
	Expect(err).NotTo(HaveOccurred())
	return loops
}
