//go:build linux

package mounts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/boot/mounts"
	"bosh-kubernetes-cpi/cpi/node/system"
)

func TestMounts(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "node boot mounts")
}

var _ = Describe("The mounts of a container", func() {
	var (
		sys   system.System
		calls []string
	)
	BeforeEach(func() {
		calls = nil
		sys = system.System{Root: GinkgoT().TempDir()}
		Expect(os.MkdirAll(sys.Path("proc/self"), 0o755)).To(Succeed())
	})
	writeMountinfo := func(content string) {
		GinkgoHelper()
		Expect(os.WriteFile(sys.Path("proc/self/mountinfo"), []byte(content), 0o600)).To(Succeed())
	}

	It("are read from mountinfo", func() {
		writeMountinfo("22 1 8:1 / / rw - ext4 /dev/sda rw\n23 22 0:5 /with\\040space " + sys.Path("a") + "\\040b rw - tmpfs tmpfs rw\n" +
			"24 22 0:6 /\\134x " + sys.Root + " rw - tmpfs tmpfs rw\n")
		Expect(mounts.Read(sys)).To(Equal(mounts.Mounts{{"0:5", "/with space", "/a b"}, {"0:6", `/\x`, "/"}}))
		sys.Root = ""
	})

	It("are all mounts without another root", func() {
		found, err := mounts.Read(system.System{})
		Expect(err).NotTo(HaveOccurred())
		_, ok := found.At("/")
		Expect(ok).To(BeTrue())
		Expect(mounts.Is(system.System{}, "/proc")).To(BeTrue())
		Expect(mounts.Is(system.System{}, "/proc/self")).To(BeFalse())
	})

	It("are those on top", func() {
		writeMountinfo("22 1 8:1 /a " + sys.Path("x") + " rw\n23 22 8:2 / " + sys.Path("x") + " rw\n")
		found, err := mounts.Read(sys)
		Expect(err).NotTo(HaveOccurred())
		mount, ok := found.At("/x")
		Expect(ok).To(BeTrue())
		Expect(mount.Device).To(Equal("8:2"))
		_, ok = found.At("/y")
		Expect(ok).To(BeFalse())
	})

	It("are unknown if mountinfo is damaged, or cannot be read", func() {
		writeMountinfo("22 1\n")
		_, err := mounts.Read(sys)
		Expect(err).To(MatchError(`/proc/self/mountinfo has the line "22 1\n"`))
		sys.Before = func(string, string) error { return unix.ENOMEM }
		_, err = mounts.Is(sys, "/dev/bosh")
		Expect(err).To(MatchError(unix.ENOMEM))
	})

	It("stay as they are if any call fails while a directory is replaced", func() {
		for _, name := range []string{"new", "old/directory"} {
			Expect(os.MkdirAll(sys.Path(name), 0o755)).To(Succeed())
		}
		Expect(os.WriteFile(sys.Path("old/file"), nil, 0o600)).To(Succeed())
		writeMountinfo(fmt.Sprintf("22 1 8:1 / %s rw\n23 22 8:2 / %s rw\n24 1 8:3 / %s rw\n",
			sys.Path("old/directory"), sys.Path("old/file"), sys.Path("older")))
		for number := 1; number <= 12; number++ {
			count, mounted := 0, false
			sys.Before = func(call, path string) error {
				calls = append(calls, call+" "+path)
				mounted = mounted || call == "mount" && path == "/old"
				if count++; count == number || call == "mount" { // which needs root
					return unix.EIO
				}
				return nil
			}
			Expect(mounts.Replace(sys, "/new", "/old")).To(MatchError(unix.EIO))
			Expect(mounted).To(BeFalse(), "before all mounts below are visible")
		}
		Expect(calls).To(ContainElement("mount /new/directory"))
		Expect(filepath.Join(sys.Root, "new/directory")).To(BeADirectory())
	})

	DescribeTable("cannot be changed", func(err error, notAllowed bool) {
		Expect(mounts.NotAllowed(fmt.Errorf("mount: %w", err))).To(Equal(notAllowed))
	},
		Entry("without permission", unix.EPERM, true),
		Entry("with a security module", unix.EACCES, true),
		Entry("without the filesystem", unix.ENODEV, true),
		Entry("if the filesystem does not support it", unix.EINVAL, true),
		Entry("but not if the answer is incomplete", unix.ENOMEM, false),
		Entry("or if the storage fails", unix.EIO, false),
	)
})
