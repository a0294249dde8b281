//go:build linux

package boot

import (
	"bytes"
	"context"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

var _ = Describe("The resources of a VM in /proc", func() {
	var root fakeRoot
	BeforeEach(func() {
		root = newStemcellRoot()
		root.mkdir("bosh/lxcfs")
		// The init program runs until this file exists, and records the content of /proc.
		root.setInit(`while [[ ! -e $root/stop ]]; do
			{ read -r uptime && read -r meminfo; } < <(read -r line <"$root/proc/uptime"; echo "$line"; read -r line <"$root/proc/meminfo"; echo "$line")
			echo "$uptime $meminfo" >"$root/seen.new"; /bin/mv "$root/seen.new" "$root/seen"
		done`)
	})

	// startLXCFS mounts lxcfs, which provides two of its files at the same time.
	startLXCFS := func() {
		GinkgoHelper()
		for _, file := range []string{"meminfo", "uptime"} {
			root.write("bosh/lxcfs/starting/"+file, "of the VM\n")
		}
		Expect(os.Rename(root.path("bosh/lxcfs/starting"), root.path("bosh/lxcfs/proc"))).To(Succeed())
	}
	// stopLXCFS makes the mounted files unreadable, here: empty, because their mounts are of this filesystem.
	stopLXCFS := func() {
		GinkgoHelper()
		Expect(os.Rename(root.path("bosh/lxcfs/proc"), root.path("bosh/lxcfs/stopped"))).To(Succeed())
		for _, file := range []string{"uptime", "meminfo"} {
			Expect(os.Truncate(root.path("bosh/lxcfs/stopped/"+file), 0)).To(Succeed())
		}
	}
	eventuallySees := func(c *container, matcher OmegaMatcher) {
		GinkgoHelper()
		Eventually(func() string {
			seen, _ := os.ReadFile(root.path("seen"))
			return string(seen)
		}).Should(matcher, c.output.String)
	}
	ofVM := Equal("of the VM of the VM\n")
	ofNode := MatchRegexp(`^\d+\.\d+ .*MemTotal`)

	It("are the VM's when the init program starts, if the node has lxcfs", func() {
		startLXCFS()
		root.setInit(`read -r line <"$root/proc/meminfo"; echo "$line" >>"$root/calls"`)
		root.expectBoot()
		Expect(root.calls()).To(ContainElement("of the VM"))
	})

	It("do not keep user namespaces from mounting procfs: there is one without covered files", func() {
		startLXCFS()
		root.setInit("")
		root.expectBoot()
		Expect(root.calls()).To(ContainElement("mount /bosh/nested/proc"))
		Expect(os.Stat(root.path("bosh/nested"))).To(HaveField("Mode()", os.ModeDir|0o700))
	})

	It("are the node's while lxcfs is not running, without any restart of the VM", func() {
		c := root.start(volumes)
		eventuallySees(c, ofNode)
		startLXCFS()
		eventuallySees(c, ofVM)
		stopLXCFS()
		eventuallySees(c, ofNode)
		startLXCFS()
		eventuallySees(c, ofVM)
		root.write("stop", "")
		Expect(c.wait()).To(Succeed(), c.output.String)
		Expect(c.output.String()).To(And(
			ContainSubstring("vm-start: /proc reports the node's resources: lxcfs is not mounted at kubernetes.pods.lxcfs_path on the node"),
			ContainSubstring("lxcfs-mounts: lxcfs stopped on the node"),
		))
	})

	It("are updated by a child process of the init program with a name for ps, and without open files", func() {
		root.setInit(`PATH=$HOST_PATH
			read -r child <"$root/proc/thread-self/children"
			until [[ $(<"$root/proc/$child/comm") == lxcfs-mounts ]]; do :; done
			tr '\0' ' ' <"$root/proc/$child/cmdline" >>"$root/calls"; echo >>"$root/calls"
			readlink "$root/proc/$child/fd/0" >>"$root/calls"`)
		startLXCFS()
		root.expectBoot()
		Expect(root.calls()).To(ContainElements("lxcfs-mounts vm lxcfs-mounts uptime meminfo ", "/dev/null"))
	})

	It("are the node's, with a log message, if the container is not allowed to mount", func() {
		startLXCFS()
		root.setInit(`read -r line <"$root/proc/meminfo"; echo "$line" >>"$root/calls"`)
		root.write("bosh/lxcfs/proc/uptime", "")
		Expect(root.expectBoot("FAIL_CALLS=mount /proc/meminfo", "FAIL_ERRNO=1")).To(
			ContainSubstring("or the container is not allowed to mount"))
		Expect(root.calls()).To(ContainElement(HavePrefix("MemTotal")))
	})

	It("become the VM's one after another if lxcfs starts during a check", func() {
		c := root.start(volumes)
		root.write("bosh/lxcfs/proc/meminfo", "of the VM\n")
		eventuallySees(c, MatchRegexp(`^\d+\.\d+ .*of the VM`))
		root.write("bosh/lxcfs/proc/uptime", "of the VM\n")
		eventuallySees(c, ofVM)
		root.write("stop", "")
		Expect(c.wait()).To(Succeed(), c.output.String)
	})

	It("keep a file that cannot be unmounted, for the next attempt", func() {
		fake, output := newFakeRoot(), &bytes.Buffer{}
		v := fake.newTestVM(output)
		errnos := map[string]unix.Errno{"/proc/stat": unix.EINVAL, "/proc/swaps": unix.EBUSY}
		v.sys.Before = func(call, path string) error {
			if errno, ok := errnos[path]; ok && call == "umount" {
				return errno
			}
			return nil
		}
		l := &lxcfs{sys: v.sys, log: v.log, mounted: []string{"stat", "swaps"}}
		l.check()
		Expect(l.mounted).To(Equal([]string{"swaps"}))
		Expect(strings.Count(output.String(), "lxcfs stopped on the node")).To(Equal(1))
	})

	It("are no longer updated when the process is stopped", func() {
		fake := newFakeRoot()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		Expect(LXCFSMounts(ctx, fake.newTestVM(&bytes.Buffer{}).sys, LXCFSCheckPeriod, nil)).To(MatchError(context.Canceled))
		Expect(fake.read("proc/self/comm")).To(Equal("lxcfs-mounts"))
	})
})
