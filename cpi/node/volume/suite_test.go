//go:build linux

package volume_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/filesystem"
	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/cpi/node/volume"
)

func TestVolume(t *testing.T) {
	if os.Getenv(childRoot) != "" {
		runChild()
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "node volume")
}

const (
	mib       = 1 << 20
	uuid      = "6d2d1c5a-6f1e-4c3b-9a59-0c9f4b8f1f10"
	otherUUID = "11111111-1111-4111-8111-111111111111"
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

func needsRoot() {
	GinkgoHelper()
	if os.Geteuid() != 0 {
		Skip("needs root: mounts filesystems on loop devices")
	}
}

// run runs a program that must succeed, and returns its output.
func run(name string, arguments ...string) string {
	GinkgoHelper()
	out, err := exec.Command(name, arguments...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s %q: %s", name, arguments, out)
	return strings.TrimSpace(string(out))
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
	needsRoot()
	loop := run("losetup", "--find", "--show", sys.Path("backing"))
	DeferCleanup(func() {
		_ = unix.Unmount(sys.Path("/mnt/grow"), unix.MNT_DETACH)
		run("losetup", "--detach", loop)
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
			run("losetup", "--detach", loop)
		}
	})
	return sys
}

// loops returns the loop devices of the image file.
func loops(sys system.System) []string {
	GinkgoHelper()
	if _, err := os.Stat(sys.Path(image)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return strings.Fields(run("losetup", "--associated", sys.Path(image), "--noheadings", "--output", "NAME"))
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
	if disk.Filesystem == "xfs" {
		run("xfs_repair", "-n", sys.Path(path))
	} else {
		run("e2fsck", "-f", "-n", sys.Path(path))
	}
	whileMounted(sys, path, func(directory string) { Expect(os.WriteFile(directory+"/test", nil, 0o600)).To(Succeed()) })
}

// whileMounted calls do while the device is mounted.
func whileMounted(sys system.System, path string, do func(directory string)) {
	GinkgoHelper()
	directory := filepath.Join(sys.Root, "mounted")
	Expect(os.MkdirAll(directory, 0o700)).To(Succeed())
	run("mount", sys.Path(path), directory)
	defer run("umount", directory)
	do(directory)
}

// mkfs creates a filesystem with the UUID on the device or in the file.
func mkfs(sys system.System, path, kind, uuid string) {
	GinkgoHelper()
	if kind == "xfs" {
		run("mkfs.xfs", "-q", "-f", "-m", "uuid="+uuid, sys.Path(path))
	} else {
		run("mkfs.ext4", "-q", "-F", "-U", uuid, sys.Path(path))
	}
}

// fakeProgram puts a script before the programs of the system.
func fakeProgram(name, script string) {
	GinkgoHelper()
	directory := GinkgoT().TempDir()
	Expect(os.WriteFile(filepath.Join(directory, name), []byte("#!/bin/sh\n"+script), 0o700)).To(Succeed())
	GinkgoT().Setenv("PATH", directory+":"+os.Getenv("PATH"))
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
