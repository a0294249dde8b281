//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// subject is a disk with a large file, attached to a machine: one for many scenarios, each of which has
// to leave it so.
type subject struct {
	*world
	m        *machine
	disk     string
	checksum string // of the large file
}

// The large file, with the size of a disk for it. It is read from the disk, and not from what the node
// remembers of it.
const (
	largeDisk  = 1280 // MiB
	fillLarge  = `dd if=/dev/urandom of=/var/vcap/store/data bs=4M count=256 conv=fsync status=none && ` + checkLarge
	checkLarge = `mountpoint -q /var/vcap/store && dd if=/var/vcap/store/data bs=4M iflag=direct status=none | b2sum`
)

func (s *subject) prepare(ctx context.Context, properties map[string]any) {
	GinkgoHelper()
	s.world = newWorld(ctx)
	s.m = s.createMachine(ctx)
	s.disk = s.createDisk(ctx, largeDisk, properties)
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
