//go:build linux

package boot

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

var _ = Describe("The cgroups of a VM", func() {
	var root fakeRoot
	BeforeEach(func() {
		root = newStemcellRoot()
		root.mkdir("sys/fs/cgroup/memory")
		root.mkdir("sys/fs/cgroup/pids")
	})

	Describe("on cgroup v1, which is read-only in an unprivileged container", func() {
		const hierarchies = volumes + `
			mount -t tmpfs tmpfs "$root/sys/fs/cgroup"; mkdir "$root"/sys/fs/cgroup/{memory,pids}
			mount -t tmpfs tmpfs "$root/sys/fs/cgroup/memory"; mount -o remount,bind,ro,nosuid "$root/sys/fs/cgroup/memory"
			mount -t tmpfs tmpfs "$root/sys/fs/cgroup/pids"
			mount -o remount,bind,ro "$root/sys/fs/cgroup"`
		BeforeEach(func() {
			root.setInit(`PATH=$HOST_PATH; for path in "" /memory /pids; do
				findmnt -no OPTIONS "$root/sys/fs/cgroup$path" >>"$root/calls"; done`)
		})

		It("are made writable, and keep other options", func() {
			c := root.start(hierarchies)
			Expect(c.wait()).To(Succeed(), c.output.String)
			calls := root.calls()
			Expect(calls[slices.Index(calls, "unshare "):]).To(HaveExactElements(
				Equal("unshare "), Equal("mount /sys/fs/cgroup/memory"), Equal("init in kubernetes"),
				HavePrefix("ro,"), HavePrefix("rw,nosuid"), HavePrefix("rw,"),
			))
		})

		It("are writable for systemd, which adds hierarchies", func() {
			root.write("lib/systemd", root.read("usr/sbin/runsvdir-start"))
			c := root.start(hierarchies, "REQUESTED_INIT=/lib/systemd")
			Expect(c.wait()).To(Succeed(), c.output.String)
			Expect(root.calls()).To(ContainElements("mount /sys/fs/cgroup", "mount /sys/fs/cgroup/memory"))
		})

		It("stay read-only if the container is not allowed to mount, and the VM starts", func() {
			c := root.start(hierarchies, "FAIL_CALLS=mount /sys/fs/cgroup/memory", "FAIL_ERRNO=1")
			Expect(c.wait()).To(Succeed(), c.output.String)
			Expect(c.output.String()).To(HaveSuffix("vm-start: cannot make /sys/fs/cgroup/memory writable: " +
				"mount /sys/fs/cgroup/memory: operation not permitted\n"))
		})
	})

	Describe("on cgroup v2", func() {
		var group, runtime string
		BeforeEach(func() {
			if os.Geteuid() != 0 {
				Skip("needs root: a cgroup")
			}
			hierarchy := findCgroup2()
			if hierarchy == "" {
				Skip("needs cgroup v2 on this host")
			}
			group = filepath.Join(hierarchy, fmt.Sprintf("boot-test-%d", os.Getpid()))
			DeferCleanup(func() {
				for _, name := range []string{"vm/init", "vm", "init", ""} {
					Eventually(func() error { return removeCgroup(filepath.Join(group, name)) }).Should(Succeed())
				}
			})
			runtime = "RUNTIME=mkdir -p " + group + " && echo 0 >" + group + "/cgroup.procs || exit 1"
			root.setInit(`PATH=$HOST_PATH; grep ^0: "$root/proc/self/cgroup" >>"$root/calls"
				ls -d "$root"/sys/fs/cgroup/{vm,init} >>"$root/calls"; findmnt -no TARGET -t cgroup2 -l | grep "^$root" >>"$root/calls"`)
		})
		start := func(variables ...string) *container {
			GinkgoHelper()
			c := root.start(volumes+`mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"`, append(variables, runtime)...)
			Expect(c.wait()).To(Succeed(), c.output.String)
			return c
		}
		// seen is what the init program sees: its cgroup, the cgroups in /sys/fs/cgroup, and the mounts.
		seen := func() []string {
			GinkgoHelper()
			calls := root.calls()
			return strings.Fields(strings.ReplaceAll(strings.Join(calls[slices.Index(calls, "init in kubernetes")+1:], "\n"), string(root), ""))
		}

		It("are the container's, and the node's are not visible, from the empty cgroup for containers", func() {
			start()
			Expect(seen()).To(Equal([]string{"0::/init", "/sys/fs/cgroup/init", "/sys/fs/cgroup"}), "the only child of vm is init")
			Expect(filepath.Join(group, "vm/init")).To(BeADirectory())
			Expect(root.exists("bosh/cgroup")).To(BeFalse())
		})

		It("are created by systemd itself", func() {
			root.write("lib/systemd", root.read("usr/sbin/runsvdir-start"))
			start("REQUESTED_INIT=/lib/systemd")
			Expect(seen()).To(Equal([]string{"0::/", "/sys/fs/cgroup"}))
			Expect(filepath.Join(group, "init")).NotTo(BeADirectory())
		})

		It("are the container runtime's if the container is not allowed to mount, and the VM starts", func() {
			c := start("FAIL_CALLS=mount /bosh/cgroup", "FAIL_ERRNO=1")
			Expect(c.output.String()).To(ContainSubstring("vm-start: cannot mount cgroup v2, keeping the container's /sys/fs/cgroup: " +
				"mount /bosh/cgroup: operation not permitted\n"))
			Expect(root.exists("bosh/cgroup")).To(BeFalse())
		})
	})
})

// findCgroup2 returns where cgroup v2 is mounted on this host, or "".
func findCgroup2() string {
	for _, path := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var stat unix.Statfs_t
		if unix.Statfs(path, &stat) == nil && stat.Type == unix.CGROUP2_SUPER_MAGIC {
			return path
		}
	}
	return ""
}

// removeCgroup removes a cgroup, which may not exist. It fails until its processes are gone.
func removeCgroup(path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
