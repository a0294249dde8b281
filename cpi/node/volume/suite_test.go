//go:build linux

package volume_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/device"
	"bosh-kubernetes-cpi/cpi/node/filesystem"
	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/cpi/node/volume"
	"bosh-kubernetes-cpi/test/harness/filesystems"
)

func TestVolume(t *testing.T) {
	filesystems.Isolate()
	if os.Getenv(childRoot) != "" {
		runChild()
	}
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	RunSpecs(t, "node volume")
}

// The UUIDs differ from those in the tests of package filesystem, which run at the same time: the kernel does not mount two XFS filesystems
// with the same UUID.
const (
	mib       = 1 << 20
	uuid      = "1f3c2b6a-7d84-4e0f-8a52-3c6e5d4b2a91"
	otherUUID = "22222222-2222-4222-8222-222222222222"
	xfsMiB    = 320 // mkfs.xfs makes no smaller filesystems
)

var (
	ext4Disk = api.Disk{CID: "disk-" + uuid, SizeMiB: 16, Filesystem: "ext4", VM: "bosh/agent-a"}
	xfsDisk  = api.Disk{CID: "disk-" + uuid, SizeMiB: xfsMiB, Filesystem: "xfs", VM: "bosh/agent-a"}
)

// formatted returns the disk as it is after a VM had it.
func formatted(disk api.Disk) api.Disk {
	disk.Formatted = true
	return disk
}

// newRoot returns the root of an attachment, without a volume.
func newRoot() system.System {
	GinkgoHelper()
	sys := system.System{Root: GinkgoT().TempDir()}
	for _, directory := range []string{"dev", "markers"} {
		Expect(os.Mkdir(sys.Path(directory), 0o755)).To(Succeed())
	}
	Expect(os.Symlink("/sys", sys.Path("sys"))).To(Succeed())
	return sys
}

// newBlockVolume returns the root of an attachment with a Block volume.
func newBlockVolume(sizeMiB int64) system.System {
	GinkgoHelper()
	sys := newRoot()
	writeFile(sys, "backing", "")
	Expect(os.Truncate(sys.Path("backing"), sizeMiB*mib)).To(Succeed())
	useBacking(sys)
	return sys
}

// useBacking makes the file "backing" the Block volume.
func useBacking(sys system.System) {
	GinkgoHelper()
	filesystems.NeedsRoot()
	loop := strings.TrimSpace(filesystems.Run("losetup", "--find", "--show", sys.Path("backing")))
	DeferCleanup(func() {
		_ = unix.Unmount(sys.Path("/mnt/grow"), unix.MNT_DETACH)
		filesystems.Run("losetup", "--detach", loop)
	})
	Expect(os.Symlink(loop, sys.Path("dev/volume"))).To(Succeed())
}

// newFilesystemVolume returns the root of an attachment with a Filesystem volume.
func newFilesystemVolume() system.System {
	GinkgoHelper()
	sys := newRoot()
	Expect(os.Mkdir(sys.Path("volume"), 0o755)).To(Succeed())
	DeferCleanup(func() {
		_ = unix.Unmount(sys.Path("/mnt/grow"), unix.MNT_DETACH)
		for _, loop := range loops(sys) {
			_ = exec.Command("losetup", "--detach", loop).Run() // fails if it is gone meanwhile
		}
	})
	return sys
}

// awaitFree waits until the device is not mounted: the kernel removes the mounts of a killed child later, and a process that another test
// starts in a new mount namespace has a copy of each mount for a moment.
func awaitFree(sys system.System) {
	GinkgoHelper()
	Eventually(func() error {
		file, err := device.OpenExclusive(sys, block)
		if err == nil {
			err = file.Close()
		}
		return err
	}, "30s", "5ms").Should(Succeed())
}

// loops returns the loop devices of the image file.
func loops(sys system.System) []string {
	GinkgoHelper()
	if _, err := os.Stat(sys.Path(image)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return strings.Fields(filesystems.Run("losetup", "--associated", sys.Path(image), "--noheadings", "--output", "NAME"))
}

// expectFreed expects that the image file gets free. Other tests open all loop devices of the host for a moment, which delays that.
func expectFreed(sys system.System) {
	GinkgoHelper()
	Eventually(func() []string { return loops(sys) }).Should(BeEmpty())
}

// free frees the loop device of the image file, and waits until the kernel has freed it: before that, it still has the previous content.
func free(prepared *volume.Device, sys system.System) {
	GinkgoHelper()
	Eventually(prepared.Free).Should(Succeed())
	expectFreed(sys)
}

const (
	image  = "/volume/disk.img"
	marker = "/markers/attached"
	block  = "/dev/volume"
)

func writeFile(sys system.System, path, content string) {
	GinkgoHelper()
	Expect(os.WriteFile(sys.Path(path), []byte(content), 0o600)).To(Succeed())
}

// writeAt writes to a device or a file.
func writeAt(sys system.System, path string, offset int64, content string) {
	GinkgoHelper()
	file, err := os.OpenFile(sys.Path(path), os.O_WRONLY, 0)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	_, err = file.WriteAt([]byte(content), offset)
	Expect(err).NotTo(HaveOccurred())
	Expect(file.Sync()).To(Succeed())
}

// recordFormatted sets the record of the PVC in the Pod.
func recordFormatted(sys system.System, value string) {
	GinkgoHelper()
	Expect(sys.MkdirAll("/pod", 0o755)).To(Succeed())
	Expect(sys.WriteFile("/pod/formatted", []byte(value), 0o644)).To(Succeed())
}

// recordingFormatted returns a system that records that the disk is formatted before the first call on the path.
func recordingFormatted(sys system.System, path string) system.System {
	recording := sys
	recording.Before = func(_, called string) error {
		if called == path {
			recordFormatted(sys, "device")
		}
		return nil
	}
	return recording
}

// prepare prepares the disk, and closes its device after the spec.
func prepare(sys system.System, disk api.Disk) (*volume.Device, error) {
	device, err := volume.Prepare(context.Background(), sys, disk)
	if err == nil {
		DeferCleanup(device.Close)
	}
	return device, err
}

func mustPrepare(sys system.System, disk api.Disk) *volume.Device {
	GinkgoHelper()
	device, err := prepare(sys, disk)
	Expect(err).NotTo(HaveOccurred())
	return device
}

// expectCode expects an error with this code and message.
func expectCode(err error, code, message string) {
	GinkgoHelper()
	Expect(err).To(MatchError(ContainSubstring(message)))
	Expect(api.ResultOf(err, "none").Code).To(Equal(code))
}

// expectFilesystem checks type and UUID of the filesystem, that it is valid, and that the kernel mounts it.
func expectFilesystem(sys system.System, path string, disk api.Disk) {
	GinkgoHelper()
	info, err := filesystem.Identify(sys, path)
	Expect(err).NotTo(HaveOccurred())
	Expect(info).To(And(HaveField("Type", disk.Filesystem), HaveField("UUID", uuid)))
	filesystems.ExpectValid(sys, path, disk.Filesystem)
}

// mkfs creates a filesystem with the UUID on the device or in the file.
func mkfs(sys system.System, path, kind, uuid string) {
	GinkgoHelper()
	if kind == "xfs" {
		filesystems.Run("mkfs.xfs", "-q", "-f", "-m", "uuid="+uuid, sys.Path(path))
	} else {
		filesystems.Run("mkfs.ext4", "-q", "-F", "-U", uuid, sys.Path(path))
	}
}

// failCall makes the n-th system call fail once. It counts no calls for loop devices, of which a node can have many: package device fails
// those.
func failCall(sys system.System, n int, errno error) system.System {
	calls := 0
	sys.Before = func(_, path string) error {
		if isLoopCall(path) {
			return nil
		}
		calls++
		if calls == n {
			return errno
		}
		return nil
	}
	return sys
}

// countCalls returns how many system calls try makes, as failCall counts them.
func countCalls(sys system.System, try func(sys system.System)) (calls int) {
	GinkgoHelper()
	sys.Before = func(_, path string) error {
		if !isLoopCall(path) {
			calls++
		}
		return nil
	}
	try(sys)
	Expect(calls).NotTo(BeZero())
	return calls
}

func isLoopCall(path string) bool {
	return strings.HasPrefix(path, "/sys/") || strings.HasPrefix(path, "/dev/loop")
}
