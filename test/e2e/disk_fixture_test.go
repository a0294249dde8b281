//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// diskFixture is a disk with a large file, attached to a VM. Specs share it; each must leave it attached and intact.
type diskFixture struct {
	*testEnv
	vm       *testVM
	disk     string
	checksum string // of the large file
}

// The large file, and the size of a disk for it. Reads bypass the node's page cache.
const (
	largeDisk  = 1280 // MiB
	fillLarge  = `dd if=/dev/urandom of=/var/vcap/store/data bs=4M count=256 conv=fsync status=none && ` + checkLarge
	checkLarge = `mountpoint -q /var/vcap/store && dd if=/var/vcap/store/data bs=4M iflag=direct status=none | b2sum`
)

func (s *diskFixture) setUp(ctx context.Context, properties map[string]any) {
	GinkgoHelper()
	s.testEnv = newTestEnv(ctx)
	s.vm = s.createVM(ctx)
	s.disk = s.createDisk(ctx, largeDisk, properties)
	s.vm.attach(ctx, s.disk)
	s.checksum = s.vm.run(ctx, fillLarge)
	s.vm.run(ctx, "echo "+s.disk+" >/var/vcap/store/mark")
}

// expectIntact checks the data, and that the disk can be detached and attached again.
func (s *diskFixture) expectIntact(ctx context.Context) {
	GinkgoHelper()
	Expect(s.vm.run(ctx, checkLarge)).To(Equal(s.checksum))
	s.vm.detach(ctx, s.disk)
	s.vm.attach(ctx, s.disk)
	Expect(s.vm.run(ctx, "cat /var/vcap/store/mark")).To(Equal(s.disk))
}
