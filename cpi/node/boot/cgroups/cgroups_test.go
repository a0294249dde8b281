//go:build linux

package cgroups

import (
	"bytes"
	"context"
	"errors"
	"log"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/system"
)

func TestCgroups(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "node boot cgroups")
}

var _ = Describe("The cgroups for containers in a VM", func() {
	var (
		root   string
		output *bytes.Buffer
		c      Cgroups
	)
	write := func(name, content string) {
		GinkgoHelper()
		path := filepath.Join(root, name)
		Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
		Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	}
	read := func(name string) string {
		GinkgoHelper()
		content, err := os.ReadFile(filepath.Join(root, name))
		Expect(err).NotTo(HaveOccurred())
		return string(content)
	}
	// setUp creates the container's cgroup, with these processes and controllers, with the files that the kernel creates with a cgroup.
	setUp := func(processes, controllers string) {
		GinkgoHelper()
		for name, content := range map[string]string{
			"cgroup.procs": processes, "cgroup.controllers": controllers, "cgroup.subtree_control": "",
			"vm/cgroup.procs": "", "vm/cgroup.controllers": controllers, "vm/cgroup.subtree_control": "",
		} {
			write("new/"+name, content)
		}
	}
	visible := func() string {
		GinkgoHelper()
		path, err := c.visible(context.Background(), "/new")
		Expect(err).NotTo(HaveOccurred())
		return path
	}
	// fail lets all calls of this name and path fail.
	fail := func(call, path string, errno unix.Errno) {
		c.Sys.Before = func(c, p string) error {
			if c == call && p == path {
				return errno
			}
			return nil
		}
	}
	BeforeEach(func() {
		root, output = GinkgoT().TempDir(), &bytes.Buffer{}
		c = Cgroups{Sys: system.System{Root: root}, Log: log.New(output, "", 0), Pause: func(context.Context, time.Duration) error {
			Fail("it waits")
			return nil
		}}
	})

	It("get its controllers, with the processes in a child cgroup", func() {
		setUp("0\n17\n", "memory\n")
		Expect(visible()).To(Equal("/new/vm"))
		Expect(read("new/cgroup.subtree_control")).To(Equal("+memory"))
		Expect(read("new/init/cgroup.procs")).To(Equal("17"), "without the process outside of the PID namespace")
		Expect(read("new/vm/cgroup.subtree_control")).To(Equal("+memory"))
		Expect(output.String()).To(BeEmpty())
	})

	It("show the limits of the VM, also in the cgroup with its processes", func() {
		setUp("17\n", "memory\n")
		write("new/memory.max", "536870912\n")
		visible()
		for _, group := range []string{"vm", "vm/init"} {
			Expect(read("new/" + group + "/memory.max")).To(Equal("536870912\n"))
			Expect(filepath.Join(root, "new", group, "cpu.max")).NotTo(BeAnExistingFile())
		}
	})

	It("may not show a limit that the kernel rejects", func() {
		setUp("17\n", "memory\n")
		write("new/memory.max", "536870912\n")
		fail("write", "/new/vm/memory.max", unix.EINVAL)
		Expect(visible()).To(Equal("/new/vm"))
		Expect(output.String()).To(Equal("programs in the VM do not see its memory.max: write /new/vm/memory.max: invalid argument\n"))
	})

	It("are created after the exit of a process that the container runtime just started", func() {
		setUp("17\n", "memory\n")
		waited := false
		c.Sys.Before = func(call, path string) error {
			if call == "write" && path == "/new/cgroup.subtree_control" && !waited {
				return unix.EBUSY
			}
			return nil
		}
		c.Pause = func(context.Context, time.Duration) error {
			waited = true
			write("new/cgroup.procs", "")
			return nil
		}
		Expect(visible()).To(Equal("/new/vm"))
		Expect(waited).To(BeTrue())
		Expect(output.String()).To(BeEmpty())
	})

	DescribeTable("have no limits if a controller cannot be delegated", func(processes string, expectedWaits int) {
		setUp(processes, "cpu memory\n")
		fail("write", "/new/cgroup.subtree_control", unix.EBUSY)
		waits := 0
		c.Pause = func(context.Context, time.Duration) error {
			waits++
			return nil
		}
		Expect(visible()).To(Equal("/new"))
		Expect(waits).To(Equal(expectedWaits), "times 0.1 s")
		Expect(output.String()).To(Equal("containers in the VM cannot have their own limits: " +
			"cannot delegate these controllers of the VM's cgroup: cpu memory\n"))
	},
		Entry("without processes", "", 0),
		Entry("while a process cannot be moved", "17\n", 100),
	)

	It("are not created if the cgroups are read-only", func() {
		setUp("", "")
		fail("mkdir", "/new/init", unix.EROFS)
		Expect(visible()).To(Equal("/new"))
		Expect(output.String()).To(Equal("containers in the VM cannot have their own limits: mkdir /new/init: read-only file system\n"))
	})

	It("stop waiting when the VM is stopped", func() {
		setUp("17\n", "memory\n")
		fail("write", "/new/cgroup.subtree_control", unix.EBUSY)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Pause = nil
		_, err := c.visible(ctx, "/new")
		Expect(err).To(MatchError(context.Canceled))
	})

	It("are complete, or the start fails, whichever system call fails", func() {
		for number := 1; ; number++ {
			count := 0
			for _, errno := range []unix.Errno{unix.EIO, unix.ENOMEM, unix.EINTR} {
				Expect(os.RemoveAll(filepath.Join(root, "new"))).To(Succeed())
				setUp("17\n", "memory\n")
				write("new/memory.max", "1\n")
				count = 0
				c.Sys.Before = func(string, string) error {
					if count++; count == number {
						return errno
					}
					return nil
				}
				c.Pause = func(context.Context, time.Duration) error { return nil }
				path, err := c.visible(context.Background(), "/new")
				if err == nil && path == "/new/vm" {
					Expect(read("new/vm/cgroup.subtree_control")).To(Equal("+memory"))
				} else if err == nil {
					Fail("unexpected visible root " + path)
				} else {
					Expect(errors.Is(err, errno)).To(BeTrue(), err.Error())
				}
			}
			if count < number {
				return
			}
		}
	})
})

var _ = Describe("The cgroups of a container", func() {
	It("are of no version without the directory, and unknown after an error", func() {
		c := Cgroups{Sys: system.System{Root: GinkgoT().TempDir()}}
		Expect(c.isVersion2()).To(BeFalse())
		c.Sys.Before = func(string, string) error { return unix.EIO }
		_, err := c.isVersion2()
		Expect(err).To(MatchError(unix.EIO))
	})

	It("fail the start if the kernel has no memory for their namespace", func() {
		c := Cgroups{Sys: system.System{Before: func(string, string) error { return unix.ENOMEM }}}
		Expect(c.Enter(context.Background())).To(MatchError("create a cgroup namespace: unshare : cannot allocate memory"))
	})
})
