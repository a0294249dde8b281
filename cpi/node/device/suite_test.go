//go:build linux

package device_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/device"
	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/test/harness/filesystems"
)

func TestDevice(t *testing.T) {
	filesystems.Isolate()
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	RunSpecs(t, "device")
}

func needsRoot() {
	GinkgoHelper()
	if os.Geteuid() != 0 {
		Skip("needs root: loop devices")
	}
}

// container is a directory that replaces /. It has only the loop devices of its spec, because the others of this host change at any time.
type container string

// newContainer returns a container with an empty image file of 1 MiB, and frees its loop devices after the spec.
func newContainer() container {
	GinkgoHelper()
	needsRoot()
	c := container(GinkgoT().TempDir())
	for _, directory := range []string{"dev", "sys/block"} {
		Expect(os.MkdirAll(c.path(directory), 0o755)).To(Succeed())
	}
	Expect(os.Symlink("/sys/dev", c.path("sys/dev"))).To(Succeed())
	c.addImage(image)
	return c
}

// image is the image file in a container.
const image = "/disk.img"

func (c container) path(name string) string { return filepath.Join(string(c), name) }

func (c container) addImage(name string) {
	GinkgoHelper()
	Expect(os.WriteFile(c.path(name), make([]byte, 1<<20), 0o600)).To(Succeed())
	DeferCleanup(func() {
		for _, path := range c.loops(name) {
			_ = exec.Command("losetup", "--detach", path).Run() // fails if it is gone meanwhile
		}
		c.expectNoLoop(name)
	})
}

// system returns a system that calls before, if it is set, before each call.
func (c container) system(before func(call, path string) error) system.System {
	return system.System{Root: string(c), Before: func(call, path string) error {
		c.addLoop(path)
		if before == nil {
			return nil
		}
		return before(call, path)
	}}
}

// addLoop adds a loop device to the container.
func (c container) addLoop(path string) {
	name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, "/sys/block/"), "/dev/"), "/")
	if strings.HasPrefix(name, "loop") && name != "loop-control" {
		_ = os.Symlink("/sys/block/"+name, c.path("sys/block/"+name))
	}
}

// find returns the loop device of the image, or nil.
func (c container) find() *device.Loop {
	GinkgoHelper()
	loop, err := device.FindLoop(c.system(nil), image)
	Expect(err).NotTo(HaveOccurred())
	if loop != nil {
		DeferCleanup(loop.Close)
	}
	return loop
}

// loops returns the loop devices of an image.
func (c container) loops(image string) []string {
	GinkgoHelper()
	return strings.Fields(losetup("--associated", c.path(image), "--noheadings", "--output", "NAME"))
}

// expectNoLoop expects that the image has no loop device any more. Another program may have it open for a moment, such as udev.
func (c container) expectNoLoop(image string) {
	GinkgoHelper()
	Eventually(func() []string { return c.loops(image) }).Should(BeEmpty())
}

// losetup binds a loop device to the image, as an administrator does.
func (c container) losetup(arguments ...string) {
	GinkgoHelper()
	c.addLoop(losetup(append(arguments, "--find", "--show", c.path(image))...))
}

// bind binds a loop device to an image.
func (c container) bind(sys system.System, image string) *device.Loop {
	GinkgoHelper()
	loop, err := device.BindLoop(GinkgoT().Context(), sys, image)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(loop.Close)
	return loop
}

func losetup(arguments ...string) string {
	GinkgoHelper()
	output, err := exec.Command("losetup", arguments...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	return strings.TrimSpace(string(output))
}

// isMarked reports whether the kernel frees the loop device at its last close.
func isMarked(path string) bool {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(path), "loop/autoclear"))
	Expect(err).NotTo(HaveOccurred())
	return string(text) == "1\n"
}

// openPlain opens the device as programs such as blkid do.
func openPlain(path string) *os.File {
	GinkgoHelper()
	file, err := os.Open(path)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = file.Close() })
	return file
}

// hook calls do before each call of this name.
func hook(name string, do func(number int)) func(call, path string) error {
	number := 0
	return func(call, _ string) error {
		if call == name {
			number++
			do(number)
		}
		return nil
	}
}

// failing lets calls of this name fail.
func failing(name string, errno unix.Errno) func(call, path string) error {
	return func(call, _ string) error {
		if call == name {
			return errno
		}
		return nil
	}
}

// eachFault runs do once for each system call that it makes, and each error that this call can have.
func eachFault(do func(before func(call, path string) error, fault string)) {
	GinkgoHelper()
	for _, errno := range []unix.Errno{unix.EIO, unix.ENOMEM, unix.EINTR} {
		for failed, reached := 1, true; reached; failed++ {
			calls := 0
			reached = false
			do(func(string, string) error {
				calls++
				if calls != failed {
					return nil
				}
				reached = true
				return errno
			}, fmt.Sprintf("call %d: %s", failed, errno))
		}
	}
}
