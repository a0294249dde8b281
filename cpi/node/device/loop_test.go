//go:build linux

package device_test

import (
	"errors"
	"os"
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/device"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// expectUnavailable expects an error with the code loop-device-unavailable.
func expectUnavailable(err error) {
	GinkgoHelper()
	var coded *api.Error
	Expect(errors.As(err, &coded)).To(BeTrue(), "%v", err)
	Expect(coded.Code).To(Equal("loop-device-unavailable"))
}

var _ = Describe("A loop device", func() {
	var c container
	var sys system.System
	BeforeEach(func() {
		c = newContainer()
		sys = c.system(nil)
	})

	It("is bound to an image, found again, and freed", func() {
		Expect(c.find()).To(BeNil())
		loop := c.bind(sys, image)
		Expect(c.loops(image)).To(ConsistOf(loop.Path()))
		Expect(device.NumbersOf(sys, loop.Path())).To(Equal(loop.Numbers()))
		found := c.find()
		Expect(found.Numbers()).To(Equal(loop.Numbers()))
		Expect(found.Close()).To(Succeed())
		Expect(loop.Free()).To(Succeed())
		c.expectNoLoop(image)
		Expect(loop.Free()).To(Succeed(), "again")
		Expect(loop.Verify()).NotTo(Succeed())
	})

	It("belongs to the file, not to its path", func() {
		loop := c.bind(sys, image)
		Expect(os.Rename(c.path(image), c.path("/renamed"))).To(Succeed())
		Expect(os.WriteFile(c.path(image), nil, 0o600)).To(Succeed())
		Expect(c.find()).To(BeNil())
		Expect(device.LoopAt(sys, loop.Numbers(), image)).To(BeNil())
		Expect(loop.Verify()).To(Succeed())
		Expect(loop.Free()).To(Succeed())
		c.expectNoLoop("/renamed")
	})

	It("is found by its numbers if it is the one of the image", func() {
		loop := c.bind(sys, image)
		found, err := device.LoopAt(sys, loop.Numbers(), image)
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Path()).To(Equal(loop.Path()))
		Expect(found.Close()).To(Succeed())
		c.addImage("/other.img")
		Expect(device.LoopAt(sys, loop.Numbers(), "/other.img")).To(BeNil())
		Expect(device.LoopAt(sys, device.Numbers{Major: 7, Minor: 1 << 19}, image)).To(BeNil())
		Expect(device.LoopAt(sys, device.Numbers{Major: 1, Minor: 0}, image)).To(BeNil())
	})

	It("gets the size of its image", func() {
		loop := c.bind(sys, image)
		Expect(os.Truncate(c.path(image), 2<<20)).To(Succeed())
		Expect(loop.UpdateCapacity()).To(Succeed())
		file, err := sys.Open(loop.Path(), unix.O_RDONLY, 0)
		Expect(err).NotTo(HaveOccurred())
		defer file.Close()
		Expect(file.Size()).To(BeEquivalentTo(2 << 20))
	})

	It("is not freed while it is in use, and then can be", func() {
		loop := c.bind(sys, image)
		user, err := device.OpenExclusive(sys, loop.Path())
		Expect(err).NotTo(HaveOccurred())
		Expect(loop.Free()).To(MatchError(device.ErrBusy))
		Expect(loop.Verify()).To(Succeed())
		Expect(user.Close()).To(Succeed())
		Expect(loop.Free()).To(Succeed())
		c.expectNoLoop(image)
	})

	It("can be freed again after an error", func() {
		attempts := 0
		loop := c.bind(c.system(func(call, _ string) error {
			if call != "LOOP_CLR_FD" {
				return nil
			} else if attempts++; attempts > 1 {
				return nil
			}
			return unix.EIO
		}), image)
		Expect(loop.Free()).To(MatchError(unix.EIO))
		Expect(loop.Free()).To(Succeed())
		c.expectNoLoop(image)
	})

	It("keeps its number while it is open, although somebody detaches it", func() {
		loop := c.bind(sys, image)
		losetup("--detach", loop.Path())
		Expect(isMarked(loop.Path())).To(BeTrue())
		c.addImage("/other.img")
		other := c.bind(sys, "/other.img")
		Expect(other.Numbers()).NotTo(Equal(loop.Numbers()))
		Expect(loop.Verify()).To(Succeed())
		Expect(isMarked(loop.Path())).To(BeFalse(), "it outlives this process")
		Expect(loop.Close()).To(Succeed())
		Expect(c.loops(image)).To(ConsistOf(loop.Path()))
	})

	It("is adopted if it was freed while another program has it open, and then outlives that program", func() {
		loop := c.bind(sys, image)
		udev := openPlain(loop.Path())
		Expect(loop.Free()).To(Succeed())
		Expect(isMarked(loop.Path())).To(BeTrue())
		adopted := c.find()
		Expect(adopted.Numbers()).To(Equal(loop.Numbers()))
		Expect(udev.Close()).To(Succeed())
		Expect(adopted.Verify()).To(Succeed())
		Expect(isMarked(loop.Path())).To(BeFalse())
		Expect(adopted.Free()).To(Succeed())
		c.expectNoLoop(image)
	})

	It("is not adopted if the mark cannot be removed", func() {
		loop := c.bind(sys, image)
		openPlain(loop.Path())
		Expect(loop.Free()).To(Succeed())
		_, err := device.FindLoop(c.system(failing("LOOP_SET_STATUS64", unix.EIO)), image)
		Expect(err).To(MatchError(unix.EIO))
	})

	It("is awaited while the kernel frees it", func() {
		var loop *device.Loop
		var last *os.File
		Eventually(func() error { // in vain while another program scans the loop devices
			if loop = c.find(); loop == nil {
				loop = c.bind(sys, image)
			}
			Expect(loop.Close()).To(Succeed())
			last = openPlain(loop.Path())
			Expect(unix.IoctlSetInt(int(last.Fd()), unix.LOOP_CLR_FD, 0)).To(Succeed())
			_, err := unix.IoctlLoopGetStatus64(int(last.Fd()))
			if err == nil {
				Expect(last.Close()).To(Succeed())
			}
			return err
		}, "30s").Should(MatchError(unix.ENXIO))
		opened := 0
		found, err := device.FindLoop(c.system(func(call, path string) error {
			if call == "open" && path == loop.Path() {
				if opened++; opened == 3 {
					return last.Close()
				}
			}
			return nil
		}), image)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(BeNil())
		Expect(opened).To(BeNumerically(">=", 3))
	})

	DescribeTable("is not used if it does not show the whole image for writing", func(arguments ...string) {
		c.losetup(arguments...)
		_, err := device.FindLoop(sys, image)
		expectUnavailable(err)
		Expect(err).To(MatchError(ContainSubstring("read-only or in part")))
		_, err = device.BindLoop(GinkgoT().Context(), sys, image)
		expectUnavailable(err)
		Eventually(func() []string { return c.loops(image) }).Should(HaveLen(1))
	},
		Entry("read-only", "--read-only"),
		Entry("in part", "--offset", "4096"),
	)

	It("is not used if the image has a second one", func() {
		c.losetup()
		c.losetup()
		_, err := device.FindLoop(sys, image)
		expectUnavailable(err)
		Expect(err).To(MatchError(ContainSubstring("has several loop devices: ")))
	})

	It("is not found if a loop device of the node cannot be read", func() {
		c.addImage("/other.img")
		c.bind(sys, "/other.img")
		eachFault(func(before func(call, path string) error, fault string) {
			loop, err := device.FindLoop(c.system(before), image)
			Expect(loop).To(BeNil(), fault)
			if err != nil {
				Expect(err).To(Or(MatchError(unix.EIO), MatchError(unix.ENOMEM)), fault)
			}
		})
	})

	It("is found, or an error, if a system call fails", func() {
		loop := c.bind(sys, image)
		eachFault(func(before func(call, path string) error, fault string) {
			found, err := device.FindLoop(c.system(before), image)
			if err != nil {
				Expect(found).To(BeNil())
				return
			}
			Expect(found).NotTo(BeNil(), fault)
			Expect(found.Numbers()).To(Equal(loop.Numbers()), fault)
			Expect(found.Close()).To(Succeed())
		})
	})

	It("is freed, or an error, if a system call fails", func() {
		eachFault(func(before func(call, path string) error, fault string) {
			bound := c.find()
			if bound == nil {
				bound = c.bind(sys, image)
			}
			Expect(bound.Close()).To(Succeed())
			loop, err := device.LoopAt(c.system(before), bound.Numbers(), image)
			if err == nil {
				err = loop.Free()
				Expect(loop.Close()).To(Succeed())
			}
			if err == nil {
				c.expectNoLoop(image)
			} else {
				Expect(c.loops(image)).To(HaveLen(1), fault)
			}
		})
	})
})

var _ = Describe("Binding a loop device", func() {
	var c container
	BeforeEach(func() { c = newContainer() })

	It("uses the next device if another program takes the free one first", func() {
		c.addImage("/other.img")
		taken := ""
		loop := c.bind(c.system(func(call, path string) error {
			if call == "LOOP_SET_FD" && taken == "" {
				taken = path
				_ = exec.Command("losetup", path, c.path("/other.img")).Run() // fails if a third program takes it
			}
			return nil
		}), image)
		Expect(loop.Path()).NotTo(Equal(taken))
	})

	It("fails if another attachment binds one for the same image at the same time", func() {
		_, err := device.BindLoop(GinkgoT().Context(), c.system(hook("LOOP_SET_FD", func(number int) {
			if number == 1 {
				c.losetup()
			}
		})), image)
		expectUnavailable(err)
		Expect(err).To(MatchError(ContainSubstring("was bound to it at the same time")))
		Eventually(func() []string { return c.loops(image) }).Should(HaveLen(1), "the other one")
	})

	It("creates the nodes that the container does not have", func() {
		loop := c.bind(c.system(nil), image)
		Expect(loop.Path()).To(HavePrefix("/dev/loop"))
		Expect(c.path(loop.Path())).To(BeAnExistingFile())
		Expect(c.path("/dev/loop-control")).To(BeAnExistingFile())
	})

	It("fails if the kernel has no loop devices", func() {
		_, err := device.BindLoop(GinkgoT().Context(), c.system(failing("LOOP_CTL_GET_FREE", unix.ENODEV)), image)
		expectUnavailable(err)
		Expect(err).To(MatchError(And(HavePrefix("cannot create a loop device for image /disk.img on this node: "),
			HaveSuffix("no such device; check that the kernel module loop is loaded"))))
	})

	It("binds one, or is an error without one, if a system call fails", func() {
		eachFault(func(before func(call, path string) error, fault string) {
			loop, err := device.BindLoop(GinkgoT().Context(), c.system(before), image)
			if err != nil {
				expectUnavailable(err)
				Expect(len(c.loops(image))).To(BeNumerically("<=", 1), fault)
				loop = c.find()
			}
			if loop != nil {
				Eventually(loop.Free).Should(Succeed(), fault) // also if the call that fails is one of Free
			}
			c.expectNoLoop(image)
		})
	})
})
