//go:build linux

package attach_test

import (
	"fmt"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/attach"
	"bosh-kubernetes-cpi/cpi/node/device"
	"bosh-kubernetes-cpi/cpi/node/lock"
	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/test/harness/processtest"
)

var _ = Describe("The exclusivity check", func() {
	var f fixture
	BeforeEach(func() { f = newFixture() })

	check := func() error { return run(attach.Check, f.System(), disk) }

	Describe("of a Block volume", func() {
		var numbers device.Numbers
		BeforeEach(func() {
			numbers = f.addBlockVolume()
			f.mknod(nodePath, numbers)
		})

		It("removes the node while the device is open exclusively", func() {
			held := false
			sys := f.failing(func(call, path string) error {
				if call == "remove" && path == nodePath {
					_, err := device.OpenExclusive(f.System(), "/dev/volume")
					Expect(err).To(MatchError(device.ErrBusy))
					held = true
				}
				return nil
			})
			Expect(run(attach.Check, sys, disk)).To(Succeed())
			Expect(held).To(BeTrue())
			Expect(f.exists(nodePath)).To(BeFalse())
		})

		It("fails while the device is in use, and reports the processes", func() {
			f.hold("/dev/volume")
			f.addMount(numbers, processtest.InVM(vm))
			err := check()
			Expect(expectCode(err, "disk-in-use").Users).To(HaveLen(1))
			Expect(err).To(MatchError("process 200 (postgres) has it mounted at /var/vcap/store"))
			Expect(f.exists(nodePath)).To(BeTrue())
		})

		It("reports processes outside of the VM that have it mounted", func() {
			f.hold("/dev/volume")
			f.addMount(numbers)
			Expect(check()).To(MatchError("process 200 (postgres) has it mounted at /var/vcap/store"))
		})

		It("fails while the device is in use, although no process is visible", func() {
			f.hold("/dev/volume")
			Expect(check()).To(MatchError("this program sees no process that uses it"))
			Expect(f.exists(nodePath)).To(BeTrue())
		})

		It("waits if no process is visible, for example while the kernel writes the data of an unmounted filesystem", func() {
			DeferCleanup(attach.ShortenPauses())
			release := f.hold("/dev/volume")
			tries := 0
			sys := f.failing(func(call, path string) error {
				if call == "open" && path == "/dev/volume" {
					if tries++; tries == 20 { // more than it tries while a user is visible
						release()
					}
				}
				return nil
			})
			Expect(attach.Check(GinkgoT().Context(), sys, disk)).To(Succeed())
			Expect(f.exists(nodePath)).To(BeFalse())
		})

		It("fails if a process of the VM has it open without a mount", func() {
			f.addOpener("/dev/volume")
			Expect(check()).To(MatchError(HavePrefix("process 200 (dd) uses ")))
			Expect(f.exists(nodePath)).To(BeTrue())
		})

		It("fails while a loop device in the VM shows the device", func() {
			directory := "/dev/attach-test"
			Expect(os.Mkdir(directory, 0o700)).To(Succeed())
			DeferCleanup(os.RemoveAll, directory)
			node := directory + "/disk"
			Expect(system.System{}.Mknod(node, unix.S_IFBLK|0o600, numbers.Dev())).To(Succeed())
			loop := losetup("--find", "--show", node)
			detach := func() { losetup("--detach", loop) }
			f.addLoop(loop)
			Expect(check()).To(MatchError("loop device " + loop + " shows it; detach that first"))
			Expect(f.exists(nodePath)).To(BeTrue())
			detach()
			Eventually(check).Should(Succeed())
		})

		It("retries if the device is in use for a moment", func() {
			release := f.hold("/dev/volume")
			tries := 0
			sys := f.failing(func(call, path string) error {
				if call == "open" && path == "/dev/volume" {
					if tries++; tries == 2 {
						release()
					}
				}
				return nil
			})
			Expect(attach.Check(GinkgoT().Context(), sys, disk)).To(Succeed())
			Expect(f.exists(nodePath)).To(BeFalse())
		})

		DescribeTable("fails with the error of the device", func(errno unix.Errno) {
			sys := f.failing(func(call, path string) error {
				if call == "open" && path == "/dev/volume" {
					return errno
				}
				return nil
			})
			err := run(attach.Check, sys, disk)
			Expect(err).To(MatchError(error(errno)))
			Expect(err).NotTo(MatchError(device.ErrBusy))
			Expect(f.exists(nodePath)).To(BeTrue())
		}, Entry(nil, unix.EIO), Entry(nil, unix.EROFS), Entry(nil, unix.ENOMEM))

		DescribeTable("succeeds if the device is gone", func(errno unix.Errno) {
			f.addOpener("/dev/volume")
			sys := f.failing(func(call, path string) error {
				if call == "open" && path == "/dev/volume" {
					return errno
				}
				return nil
			})
			Expect(run(attach.Check, sys, disk)).To(Succeed())
			Expect(f.exists(nodePath)).To(BeFalse())
		}, Entry(nil, unix.ENXIO), Entry(nil, unix.ENODEV), Entry(nil, unix.ENOMEDIUM))

		It("never removes the node of a used device, no matter which call fails", func() {
			f.addOpener("/dev/volume")
			f.eachFault(func(sys system.System, fault string) {
				Expect(run(attach.Check, sys, disk)).NotTo(Succeed(), fault)
				Expect(f.exists(nodePath)).To(BeTrue(), fault)
			}, errnos...)
		})

		It("never removes the node of a mounted device, no matter which call fails", func() {
			f.hold("/dev/volume")
			f.addMount(numbers, processtest.InVM(vm))
			f.eachFault(func(sys system.System, fault string) {
				Expect(run(attach.Check, sys, disk)).NotTo(Succeed(), fault)
				Expect(f.exists(nodePath)).To(BeTrue(), fault)
			}, errnos...)
		})

		It("fails while the device is in use, although root in the VM removed the node", func() {
			held, err := lock.Take(f.System(), lockPath)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(held.Release)
			f.Remove(nodePath)
			f.hold("/dev/volume")
			f.addMount(numbers, processtest.InVM(vm))
			Expect(check()).To(MatchError("process 200 (postgres) has it mounted at /var/vcap/store"))
		})

		It("removes the node of a free device, or fails, if a call fails", func() {
			f.eachFault(func(sys system.System, fault string) {
				err := run(attach.Check, sys, disk)
				Expect(f.exists(nodePath)).To(Equal(err != nil), fault)
				f.Remove(nodePath)
				f.mknod(nodePath, numbers)
			}, errnos...)
		})
	})

	Describe("without a node", func() {
		It("succeeds if the attachment is running: an earlier check removed it", func() {
			held, err := lock.Take(f.System(), lockPath)
			Expect(err).NotTo(HaveOccurred())
			Expect(check()).To(Succeed())
			Expect(held.Release()).To(Succeed())
		})

		It("has no result if no attachment holds the lock", func() {
			f.Write(lockPath, "")
			err := check()
			_ = expectCode(err, "disk-not-published")
			Expect(err).To(MatchError(attach.ErrNotPublished))
			Expect(err).To(MatchError(ContainSubstring("the attachment of disk disk-1 has not published it yet")))
		})

		It("waits for the node that an attachment is about to create", func() {
			var result running
			sys := f.failing(func(call, path string) error {
				if call == "mknod" && path == nodePath+".new" {
					first := make(chan struct{}, 100)
					result = start(attach.Check, f.failing(func(call, path string) error {
						if call == "stat" && path == nodePath {
							first <- struct{}{}
						}
						return nil
					}), disk)
					Eventually(first).Should(Receive())
				}
				return nil
			})
			f.attach(sys)
			Expect(result.wait()).To(Succeed())
			Expect(f.exists(nodePath)).To(BeFalse())
		})

		It("never succeeds if no attachment runs, no matter which call fails", func() {
			f.eachFault(func(sys system.System, fault string) {
				Expect(run(attach.Check, sys, disk)).NotTo(Succeed(), fault)
			}, errnos...)
		})
	})

	Describe("of an image file", func() {
		var path string
		var numbers device.Numbers
		BeforeEach(func() {
			Expect(os.WriteFile(f.Path(image), make([]byte, 1<<20), 0o600)).To(Succeed())
			path, numbers = f.bindImage()
			f.mknod(nodePath, numbers)
		})

		It("frees the loop device if the attachment, which would free it, is not running", func() {
			Expect(check()).To(Succeed())
			f.expectUnpublished()
		})

		It("leaves the loop device to a running attachment, no matter which call fails", func() {
			held, err := lock.Take(f.System(), lockPath)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(held.Release)
			f.eachFault(func(sys system.System, fault string) {
				_ = run(attach.Check, sys, disk)
				Expect(f.loops()).To(ConsistOf(path), fault)
				f.Remove(nodePath)
				f.mknod(nodePath, numbers)
			}, errnos...)
		})

		It("frees nothing if the VM replaced the node by the loop device of another disk, and checks its own", func() {
			other := f.addBlockVolume()
			f.Remove("dev/volume")
			f.Remove(nodePath)
			f.mknod(nodePath, other)
			f.addOpener(nodePath)
			Expect(check()).To(Succeed())
			f.expectUnpublished()
			Expect(losetup("--list", "--noheadings", fmt.Sprintf("/dev/loop%d", other.Minor))).NotTo(BeEmpty())
		})

		It("fails while the loop device is in use, although root in the VM removed the node", func() {
			held, err := lock.Take(f.System(), lockPath)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(held.Release)
			f.Remove(nodePath)
			f.mknod(path, numbers)
			f.hold(path)
			f.addMount(numbers, processtest.InVM(vm))
			Expect(check()).To(MatchError("process 200 (postgres) has it mounted at /var/vcap/store"))
		})

		It("removes the node of a loop device that was freed", func() {
			losetup("--detach", path)
			Eventually(f.loops).Should(BeEmpty())
			Expect(check()).To(Succeed())
			f.expectUnpublished()
		})

		It("checks the device of the node, and frees none, in a container without the volume", func() {
			Expect(os.Rename(f.Path(image), f.Path("elsewhere"))).To(Succeed())
			DeferCleanup(func() { losetup("--detach", path) })
			f.addOpener(nodePath)
			Expect(check()).To(MatchError(HavePrefix("process 200 (dd) uses ")))
			f.Remove("proc/200")
			Expect(check()).To(Succeed())
			Expect(f.exists(nodePath)).To(BeFalse())
			Expect(losetup("--associated", f.Path("elsewhere"))).NotTo(BeEmpty())
		})
	})
})
