//go:build linux

package device_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/device"
	"bosh-kubernetes-cpi/cpi/node/system"
)

var _ = Describe("The numbers of a device", func() {
	It("are those of the node, also through a link", func() {
		needsRoot()
		directory := GinkgoT().TempDir()
		Expect(unix.Mknod(filepath.Join(directory, "node"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 5000)))).To(Succeed())
		Expect(os.Symlink("node", filepath.Join(directory, "link"))).To(Succeed())
		numbers, err := device.NumbersOf(system.System{}, filepath.Join(directory, "link"))
		Expect(err).NotTo(HaveOccurred())
		Expect(numbers).To(Equal(device.Numbers{Major: 7, Minor: 5000}))
		Expect(numbers.Dev()).To(Equal(unix.Mkdev(7, 5000)))
		Expect(numbers.String()).To(Equal("7:5000"))
	})

	DescribeTable("are an error for other paths", func(path string) {
		_, err := device.NumbersOf(system.System{}, path)
		Expect(err).To(MatchError(device.ErrNotDevice))
	},
		Entry("a path that does not exist", "/nonexistent"),
		Entry("a character device", "/dev/null"),
		Entry("a file", "/proc/self/status"),
	)

	It("are unknown if the node cannot be read", func() {
		_, err := device.NumbersOf(system.System{Before: failing("stat", unix.EIO)}, "/nonexistent")
		Expect(err).To(MatchError(unix.EIO))
		Expect(err).NotTo(MatchError(device.ErrNotDevice))
	})
})

var _ = Describe("Opening a device exclusively", func() {
	It("fails while it is mounted or open exclusively", func() {
		c := newContainer()
		sys := c.system(nil)
		loop := c.bind(sys, image)
		file, err := device.OpenExclusive(sys, loop.Path())
		Expect(err).NotTo(HaveOccurred(), "although the loop device is kept open")
		_, err = device.OpenExclusive(sys, loop.Path())
		Expect(err).To(MatchError(device.ErrBusy))
		Expect(file.Close()).To(Succeed())
	})

	It("is only for reading if it is write-protected and released", func() {
		c := newContainer()
		loop := c.bind(c.system(nil), image)
		opens := 0
		file, err := device.Claim(c.system(func(call, path string) error {
			if call == "open" && path == loop.Path() {
				if opens++; opens == 1 {
					return unix.EROFS
				}
			}
			return nil
		}), loop.Path())
		Expect(err).NotTo(HaveOccurred())
		Expect(file.Close()).To(Succeed())
	})

	DescribeTable("fails with ErrGone only if the device does not exist any more", func(errno unix.Errno, isGone bool) {
		_, err := device.OpenExclusive(system.System{Before: failing("open", errno)}, "/dev/volume")
		Expect(err).To(MatchError(error(errno)))
		Expect(err).To(MatchError(ContainSubstring("/dev/volume")))
		if isGone {
			Expect(err).To(MatchError(device.ErrGone))
		} else {
			Expect(err).NotTo(Or(MatchError(device.ErrGone), MatchError(device.ErrBusy)))
		}
	},
		Entry("a lost session", unix.ENXIO, true),
		Entry("a removed driver", unix.ENODEV, true),
		Entry("a removed medium", unix.ENOMEDIUM, true),
		Entry("a failed device", unix.EIO, false),
		Entry("no memory", unix.ENOMEM, false),
		Entry("no permission", unix.EPERM, false),
	)

	It("fails for a file, which O_EXCL does not protect", func() {
		path := filepath.Join(GinkgoT().TempDir(), "file")
		Expect(os.WriteFile(path, nil, 0o600)).To(Succeed())
		_, err := device.OpenExclusive(system.System{}, path)
		Expect(err).To(MatchError(device.ErrNotDevice))
	})
})

var _ = Describe("Publishing a device", func() {
	var path string
	BeforeEach(func() {
		needsRoot()
		path = filepath.Join(GinkgoT().TempDir(), "disk-1")
	})

	It("replaces the node, and files of an interrupted attachment", func() {
		Expect(os.WriteFile(path, nil, 0o600)).To(Succeed())
		Expect(os.WriteFile(path+".new", nil, 0o600)).To(Succeed())
		DeferCleanup(unix.Umask, unix.Umask(0o077))
		Expect(device.Publish(system.System{}, path, device.Numbers{Major: 8, Minor: 16})).To(Succeed())
		stat, err := system.System{}.Lstat(path)
		Expect(err).NotTo(HaveOccurred())
		Expect(stat.Mode).To(BeEquivalentTo(unix.S_IFBLK | 0o660))
		Expect(stat.Rdev).To(Equal(unix.Mkdev(8, 16)))
		Expect(path + ".new").NotTo(BeAnExistingFile())
	})

	It("changes no target of a link that the VM creates", func() {
		target := filepath.Join(GinkgoT().TempDir(), "shadow")
		Expect(os.WriteFile(target, nil, 0o600)).To(Succeed())
		sys := system.System{Before: hook("rename", func(int) {
			Expect(os.Remove(path + ".new")).To(Succeed())
			Expect(os.Symlink(target, path+".new")).To(Succeed())
		})}
		Expect(device.Publish(sys, path, device.Numbers{Major: 8, Minor: 16})).To(Succeed())
		Expect(os.Stat(target)).To(HaveField("Mode()", os.FileMode(0o600)))
	})

	It("leaves a complete node or none after each error", func() {
		eachFault(func(before func(call, path string) error, fault string) {
			_ = os.Remove(path)
			err := device.Publish(system.System{Before: before}, path, device.Numbers{Major: 8, Minor: 16})
			_, missing := device.NumbersOf(system.System{}, path)
			Expect(err == nil).To(Equal(missing == nil), fault)
		})
	})
})

var _ = Describe("The node of a device in the container's /dev", func() {
	numbers := device.Numbers{Major: 7, Minor: 5000}
	var sys system.System
	BeforeEach(func() {
		needsRoot()
		sys = system.System{Root: GinkgoT().TempDir()}
	})

	It("is created once", func() {
		Expect(device.EnsureNode(sys, "/bosh-disk", numbers)).To(Succeed())
		Expect(device.EnsureNode(sys, "/bosh-disk", numbers)).To(Succeed())
		Expect(device.NumbersOf(sys, "/bosh-disk")).To(Equal(numbers))
	})

	It("may be created by another program at the same time", func() {
		sys.Before = func(call, _ string) error {
			if call == "mknod" {
				return unix.Mknod(sys.Path("/bosh-disk"), unix.S_IFBLK|0o600, int(numbers.Dev()))
			}
			return nil
		}
		Expect(device.EnsureNode(sys, "/bosh-disk", numbers)).To(Succeed())
	})

	It("is not the node of another device", func() {
		Expect(device.EnsureNode(sys, "/bosh-disk", numbers)).To(Succeed())
		Expect(device.EnsureNode(sys, "/bosh-disk", device.Numbers{Major: 8, Minor: 16})).
			To(MatchError("/bosh-disk is device 7:5000 instead of 8:16"))
	})
})
