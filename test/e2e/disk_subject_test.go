//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// subject is a disk with a large file, attached to a machine: one for many scenarios, each of which has
// to leave it so.
type subject struct {
	*world
	m        *machine
	disk     string
	blocks   int    // of the large file; 256 by default
	checksum string // of the large file
}

// The large file, with the size of a disk for it. It is read from the disk, and not from what the node
// remembers of it. fillBlocks is followed by how many blocks of 4 MiB it has.
const (
	largeDisk  = 1280 // MiB
	fillBlocks = `dd if=/dev/urandom of=/var/vcap/store/data bs=4M conv=fsync status=none count=`
	fillLarge  = fillBlocks + `256 && ` + checkLarge
	checkLarge = `mountpoint -q /var/vcap/store && dd if=/var/vcap/store/data bs=4M iflag=direct status=none | b2sum`
)

func (s *subject) prepare(ctx context.Context, properties map[string]any) {
	GinkgoHelper()
	s.prepareIn(ctx, newWorld(ctx), properties)
}

func (s *subject) prepareIn(ctx context.Context, w *world, properties map[string]any) {
	GinkgoHelper()
	s.world, s.blocks = w, cmp.Or(s.blocks, 256)
	s.m = s.createMachine(ctx)
	s.disk = s.createDisk(ctx, s.blocks*5, properties)
	s.m.attach(ctx, s.disk)
	s.checksum = s.m.run(ctx, fmt.Sprintf("%s%d && %s", fillBlocks, s.blocks, checkLarge))
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
