//go:build linux

package boot

import (
	"bytes"
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

var _ = Describe("The kernel", func() {
	var (
		root   fakeRoot
		output *bytes.Buffer
	)
	BeforeEach(func() { root, output = newFakeRoot(), &bytes.Buffer{} })

	DescribeTable("kills one process, and not the VM, when the VM's memory is used up", func(cgroup, file string) {
		root.write("proc/self/cgroup", "4:memory:/kubepods/other\n0::"+cgroup+"\n")
		root.write(file, "1\n")
		Expect(root.newTestVM(output).disableGroupKill(context.Background())).To(Succeed())
		Expect(root.read(file)).To(Equal("0\n"))
	},
		Entry("if all cgroups of the node are visible", "/kubepods/c0ffee", "sys/fs/cgroup/kubepods/c0ffee/memory.oom.group"),
		Entry("if only its own cgroup is visible", "/", "sys/fs/cgroup/memory.oom.group"),
	)

	DescribeTable("is not changed", func(write func()) {
		write()
		v := root.newTestVM(output)
		v.sys.Before = func(call, _ string) error {
			Expect(call).NotTo(Equal("write"))
			return nil
		}
		Expect(v.disableGroupKill(context.Background())).To(Succeed())
		Expect(output.String()).To(BeEmpty())
	},
		Entry("if a sandbox does not show cgroups", func() {}),
		Entry("on cgroup v1", func() { root.write("proc/self/cgroup", "4:memory:/kubepods/c0ffee\n") }),
		Entry("without the file", func() { root.write("proc/self/cgroup", "0::/\n") }),
		Entry("if it kills one process anyway", func() {
			root.write("proc/self/cgroup", "0::/\n")
			root.write("sys/fs/cgroup/memory.oom.group", "0\n")
		}),
	)

	It("restarts the VM when its memory is used up if that cannot be changed, with a message", func() {
		root.write("proc/self/cgroup", "0::/\n")
		root.write("sys/fs/cgroup/memory.oom.group", "1\n")
		v := root.newTestVM(output)
		v.sys.Before = func(call, _ string) error {
			if call == "write" {
				return unix.EROFS
			}
			return nil
		}
		Expect(v.disableGroupKill(context.Background())).To(Succeed())
		Expect(output.String()).To(Equal("vm-start: the whole VM restarts when its memory is used up: " +
			"cannot write memory.oom.group of its cgroup\n"))
	})

	DescribeTable("lets programs open as many files as on other VMs", func(current uint64, errno error, expected, message string) {
		v := root.newTestVM(output)
		requested := ""
		v.sys.Before = func(call, _ string) error { // never lets a call change the limits of the tests
			requested = call
			return errno
		}
		Expect(v.raiseOpenFiles(unix.Rlimit{Cur: 1024, Max: current})).To(Succeed())
		Expect(requested).To(Equal(expected))
		Expect(output.String()).To(ContainSubstring(message))
	},
		Entry("without lowering a higher limit", uint64(1048576), unix.EIO, "", ""),
		Entry("without limiting an unlimited number", uint64(unix.RLIM_INFINITY), unix.EIO, "", ""),
		Entry("or logs the limit that it is not allowed to raise", uint64(20000), unix.EPERM, "setrlimit",
			"programs can open 20000 files, not 524288"),
	)

	It("reports why limits cannot be changed", func() {
		v := root.newTestVM(output)
		v.sys.Before = func(string, string) error { return unix.ENOMEM }
		Expect(v.raiseOpenFiles(unix.Rlimit{Cur: 1024, Max: 20000})).To(MatchError("raise the limit of open files: setrlimit : cannot allocate memory"))
		Expect(v.raiseLimits(context.Background())).To(MatchError("read a limit: getrlimit : cannot allocate memory"))
	})
})
