//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// diskFixture is a disk with a large file, attached to a VM. Specs share it. Each spec must leave it attached and intact.
type diskFixture struct {
	*testEnv
	vm       *testVM
	disk     string
	checksum string // checksum of the large file
}

// The large file, and the size of a disk for it. Reads bypass the node's page cache.
const (
	largeDisk  = 1280 // MiB
	fillLarge  = `dd if=/dev/urandom of=/var/vcap/store/data bs=4M count=256 conv=fsync status=none && ` + checkLarge
	checkLarge = `mountpoint -q /var/vcap/store && dd if=/var/vcap/store/data bs=4M iflag=direct status=none | b2sum`
)

func (f *diskFixture) setUp(ctx context.Context, properties map[string]any) {
	GinkgoHelper()
	f.testEnv = newTestEnv(ctx)
	f.vm = f.createVM(ctx)
	f.disk = f.createDisk(ctx, largeDisk, properties)
	f.vm.attach(ctx, f.disk)
	f.checksum = f.vm.run(ctx, fillLarge)
	f.vm.run(ctx, "echo "+f.disk+" >/var/vcap/store/mark")
}

// expectIntact expects that the disk has its data, and can be detached and attached again.
func (f *diskFixture) expectIntact(ctx context.Context) {
	GinkgoHelper()
	Expect(f.vm.run(ctx, checkLarge)).To(Equal(f.checksum))
	f.vm.detach(ctx, f.disk)
	f.vm.attach(ctx, f.disk)
	Expect(f.vm.run(ctx, "cat /var/vcap/store/mark")).To(Equal(f.disk))
}
