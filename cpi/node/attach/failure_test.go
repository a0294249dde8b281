//go:build linux

package attach_test

import (
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/attach"
	"bosh-kubernetes-cpi/cpi/node/device"
	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/test/harness/processtest"
)

var _ = Describe("An attachment that cannot publish its disk", func() {
	var f fixture
	BeforeEach(func() { f = newFixture() })

	// failAt returns a system in which the call fails.
	failAt := func(failing string, errno unix.Errno) system.System {
		return f.failing(func(call, path string) error {
			if call+" "+path == failing {
				return errno
			}
			return nil
		})
	}

	It("names the cause, and frees the loop device", func() {
		err := run(attach.Run, failAt("mknod /devices/disk-1.new", unix.ENOSPC), disk)
		_ = expectCode(err, "disk-attach-failed")
		Expect(err).To(MatchError("cannot attach disk disk-1: mknod /devices/disk-1.new: no space left on device"))
		f.expectUnpublished()
	})

	It("keeps the loop device if the VM uses it", func() {
		r := start(attach.Run, f.failing(func(call, path string) error {
			if call == "mknod" && path == "/devices/disk-1.new" {
				f.Add(processtest.Process{ID: 200, Parent: 100, Name: "dd"})
				f.Open(200, 3, f.loops()[0], 7000099)
				return unix.EIO
			}
			return nil
		}), disk)
		Expect(r.wait()).To(MatchError(unix.EIO))
		Expect(f.loops()).To(HaveLen(1))
		Expect(f.log).To(gbytes.Say("cannot free the device"))
	})

	It("keeps the loop device of another attachment", func() {
		other := running{}
		var once sync.Once
		err := start(attach.Run, f.failing(func(call, path string) (err error) {
			if call == "mknod" && path == "/devices/disk-1.new" {
				once.Do(func() { other, err = f.attach(f.System()), unix.EIO })
			}
			return err
		}), disk).wait()
		Expect(err).To(MatchError(unix.EIO))
		Expect(f.exists(nodePath)).To(BeTrue())
		Expect(f.loops()).To(HaveLen(1))
		other.stop()
		Expect(other.wait()).To(Succeed())
	})

	It("removes the node of a Block volume without a lock, because the CPI releases the disk then", func() {
		f.addBlockVolume()
		f.Write(lockPath+".new/file", "")
		_ = expectCode(run(attach.Run, f.System(), disk), "disk-lock-failed")
		Expect(f.exists(nodePath)).To(BeFalse())
	})

	It("fails if the VM keeps it from creating the lock", func() {
		f.Write(lockPath+".new/file", "")
		err := run(attach.Run, f.System(), disk)
		_ = expectCode(err, "disk-lock-failed")
		Expect(err).To(MatchError(HavePrefix("cannot create the lock of disk disk-1 in VM bosh/agent-a: ")))
		Expect(f.exists(nodePath)).To(BeFalse())
		Eventually(f.loops).Should(BeEmpty())
	})

	It("removes a node that is another device now", func() {
		f.mknod(nodePath, device.Numbers{Major: 7, Minor: 1 << 19})
		formatted := disk
		formatted.Formatted = true // without an image file
		_ = expectCode(run(attach.Run, f.System(), formatted), "volume-blank")
		Expect(f.exists(nodePath)).To(BeFalse())
	})

	It("removes a node that is not the Block volume", func() {
		f.addBlockVolume()
		f.mknod(nodePath, device.Numbers{Major: 8, Minor: 16})
		Expect(run(attach.Run, failAt("mknod /devices/disk-1.new", unix.EIO), disk)).To(MatchError(unix.EIO))
		Expect(f.exists(nodePath)).To(BeFalse())
	})

	It("keeps the node if it cannot find out whether it is the disk", func() {
		f.mknod(nodePath, device.Numbers{Major: 8, Minor: 16})
		Expect(run(attach.Run, failAt("stat /dev/volume", unix.EIO), disk)).To(MatchError(unix.EIO))
		Expect(f.exists(nodePath)).To(BeTrue())
	})

	It("fails if the disk is in use outside of the VM", func() {
		DeferCleanup(attach.ShortenPauses())
		numbers := f.addBlockVolume()
		format(f.Path("dev/volume"))
		f.hold("/dev/volume")
		f.addMount(numbers)
		err := run(attach.Run, f.System(), disk)
		Expect(expectCode(err, "disk-in-use").Users).To(HaveLen(1))
		Expect(err).To(MatchError("cannot publish disk disk-1 in VM bosh/agent-a: it is in use outside of the VM: " +
			"process 200 (postgres) has it mounted at /var/vcap/store"))
		Expect(f.exists(nodePath)).To(BeFalse())
	})

	It("publishes it, or fails without a node, after each fault", func() {
		format(f.Path(image))
		f.eachFault(func(sys system.System, fault string) {
			err := run(attach.Run, sys, disk)
			Expect(f.exists(nodePath)).To(BeFalse(), fault)
			if err == nil {
				Eventually(f.loops).Should(BeEmpty(), fault)
			}
		}, unix.EIO)
	})

	It("never removes the node of the disk, which the VM may use, no matter which call fails", func() {
		format(f.Path(image))
		_, numbers := f.bindImage()
		f.mknod(nodePath, numbers)
		f.eachFault(func(sys system.System, fault string) {
			before := sys.Before
			sys.Before = func(call, path string) error {
				if call == "umount" { // the first call that prepares the disk
					return unix.EPERM
				}
				return before(call, path)
			}
			Expect(run(attach.Run, sys, disk)).NotTo(Succeed(), fault)
			Expect(f.exists(nodePath)).To(BeTrue(), fault)
		}, errnos...)
	})
})
