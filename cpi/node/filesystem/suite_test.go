//go:build linux

package filesystem_test

import (
	"os"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/test/harness/filesystems"
)

func TestFilesystem(t *testing.T) {
	filesystems.Isolate()
	RegisterFailHandler(Fail)
	RunSpecs(t, "node filesystem")
}

const (
	mib       = 1 << 20
	uuid      = "6d2d1c5a-6f1e-4c3b-9a59-0c9f4b8f1f10"
	otherUUID = "11111111-1111-4111-8111-111111111111"
	xfsBytes  = 320 * mib // mkfs.xfs makes no smaller filesystems
)

// path is where the image file, or a link to its loop device, is in the root of a test.
const path = "/disk"

// newRoot returns a system with an empty image file of this size.
func newRoot(bytes int64) system.System {
	GinkgoHelper()
	sys := system.System{Root: GinkgoT().TempDir()}
	Expect(os.WriteFile(sys.Path(path), nil, 0o600)).To(Succeed())
	Expect(os.Truncate(sys.Path(path), bytes)).To(Succeed())
	return sys
}

// mkfs creates a filesystem in the image file, with otherUUID unless the arguments have another one.
func mkfs(sys system.System, filesystem string, arguments ...string) {
	GinkgoHelper()
	command := map[string][]string{
		"ext2": {"mkfs.ext2", "-q", "-F", "-U", otherUUID}, "ext3": {"mkfs.ext3", "-q", "-F", "-U", otherUUID},
		"ext4": {"mkfs.ext4", "-q", "-F", "-U", otherUUID}, "xfs": {"mkfs.xfs", "-q", "-f", "-m", "uuid=" + otherUUID},
	}[filesystem]
	filesystems.Run(command[0], append(append(command[1:], arguments...), sys.Path(path))...)
}

// useLoop replaces the image file in the root by a link to its loop device.
func useLoop(sys system.System) {
	GinkgoHelper()
	filesystems.NeedsRoot()
	Expect(os.Rename(sys.Path(path), sys.Path(image))).To(Succeed())
	loop := strings.TrimSpace(filesystems.Run("losetup", "--find", "--show", sys.Path(image)))
	DeferCleanup(func() {
		_ = unix.Unmount(sys.Path("/mnt/grow"), unix.MNT_DETACH)
		filesystems.Run("losetup", "--detach", loop)
	})
	Expect(os.Symlink(loop, sys.Path(path))).To(Succeed())
}

// image is the image file of a loop device.
const image = "/disk.img"

// copyOf returns another loop device with a copy of the image file.
func copyOf(sys system.System) system.System {
	GinkgoHelper()
	target := system.System{Root: GinkgoT().TempDir()}
	filesystems.Run("sync", sys.Path(path), sys.Path(image))
	filesystems.Run("cp", "--sparse=always", sys.Path(image), target.Path(path))
	useLoop(target)
	return target
}

// failCall makes the n-th system call fail once.
func failCall(sys system.System, n int, errno error) system.System {
	calls := 0
	sys.Before = func(string, string) error {
		calls++
		if calls == n {
			return errno
		}
		return nil
	}
	return sys
}

// eachFailure calls try with a system of which one call fails, for each call that try makes and each kind of failure. interrupted is true
// if no call fails, or a call is only interrupted.
func eachFailure(sys system.System, errnos []unix.Errno, try func(sys system.System, interrupted bool)) {
	GinkgoHelper()
	calls := 0
	counting := sys
	counting.Before = func(string, string) error { calls++; return nil }
	try(counting, true)
	Expect(calls).NotTo(BeZero())
	for n := range calls {
		for _, errno := range errnos {
			try(failCall(sys, n+1, errno), errno == unix.EINTR)
		}
	}
}
