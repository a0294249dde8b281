//go:build linux

package boot

import (
	"os"
	"slices"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/system"
)

var _ = Describe("The init program", func() {
	var root fakeRoot
	BeforeEach(func() { root = newStemcellRoot() })

	// boot starts a VM after a script of the container runtime, and returns what the init program recorded.
	boot := func(runtime, init string, variables ...string) []string {
		GinkgoHelper()
		root.setInit(`exec >>"$root/calls"; ` + init)
		c := root.start(volumes, append(variables, "RUNTIME="+runtime)...)
		Expect(c.wait()).To(Succeed(), c.output.String)
		return root.calls()
	}

	It("is process 1, with the environment of the container", func() {
		Expect(boot("", `echo "process $$ $OF_THE_CONTAINER $container $0"`, "OF_THE_CONTAINER=value", "container=runtime")).To(
			ContainElement("process 1 value kubernetes " + root.path("usr/sbin/runsvdir-start")))
	})

	It("has the container's soft limit of open files, and not the one that Go set", func() {
		Expect(boot("ulimit -Sn 1000; ulimit -Hn 4000", "ulimit -Sn", "FAIL_CALLS=setrlimit ", "FAIL_ERRNO=1")).To(ContainElement("1000"))
	})

	It("has the container's soft limit, also if the hard limit is high enough", func() {
		var limit unix.Rlimit
		Expect(unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)).To(Succeed())
		if limit.Max < maxOpenFiles {
			Skip("needs a hard limit of open files of 524288")
		}
		Expect(boot("ulimit -Sn 1000; ulimit -Hn 524288", "ulimit -Sn; ulimit -Hn")).To(ContainElements("1000", "524288"))
	})

	It("has a raised hard limit of open files, and the container's soft limit", func() {
		runtime := "ulimit -Sn 1000; ulimit -Hn 4000"
		raised := boot(runtime, "ulimit -Sn; ulimit -Hn")
		Expect(raised).To(ContainElement("1000"))
		Expect(raised).To(ContainElement(BeElementOf("4000", "524288")), "with or without permission")
	})

	It("starts with a message if the container is not allowed to raise the limit", func() {
		c := root.start(volumes, "RUNTIME=ulimit -Sn 1000; ulimit -Hn 4000", "FAIL_CALLS=setrlimit ", "FAIL_ERRNO=1")
		Expect(c.wait()).To(Succeed())
		Expect(c.output.String()).To(HavePrefix("vm-start: programs can open 4000 files, not 524288 as on other VMs: " +
			"the container is not allowed to raise the limit\n"))
	})

	It("does not start if its limit is unknown", func() {
		c := root.start(volumes, "FAIL_CALLS=exec /bin/cat", "FAIL_ERRNO="+strconv.Itoa(int(unix.ENOMEM)))
		Expect(c.wait()).NotTo(Succeed())
		Expect(c.output.String()).To(ContainSubstring("read the limit of open files: run"))
	})

	It("handles all signals as the kernel does by default", func() {
		calls := boot(`trap "" PIPE HUP USR1`, `PATH=$HOST_PATH exec cat "$root/proc/self/status"`) // bash ignores SIGQUIT
		Expect(calls).To(ContainElement("SigBlk:\t0000000000000000"))
		Expect(calls).To(ContainElement("SigIgn:\t0000000000000000"))
		Expect(calls).To(ContainElement("SigCgt:\t0000000000000000"))
	})

	It("has no open files but the standard ones, and no children", func() {
		// The tests may run with other files, which they pass on.
		closeFiles := `for file in /proc/self/fd/*; do number=${file##*/}; ((number < 3)) || eval "exec $number>&-"; done`
		calls := boot(closeFiles, `echo "children: $(<"$root/proc/thread-self/children")"; PATH=$HOST_PATH exec ls "$root/proc/self/fd"`)
		index := slices.Index(calls, "children: ")
		Expect(index).To(BeNumerically(">", 0))
		Expect(calls[index+1:]).To(HaveExactElements("0", "1", "2", "3"), "with the directory that ls reads")
	})

	It("is in a cgroup namespace of the VM", func() {
		own, err := os.Readlink("/proc/self/ns/cgroup")
		Expect(err).NotTo(HaveOccurred())
		calls := boot("", `PATH=$HOST_PATH; readlink "$root/proc/self/ns/cgroup"`)
		Expect(calls[len(calls)-1]).To(And(HavePrefix("cgroup:["), Not(Equal(own))))
	})

	It("starts with the container's cgroups if the container is not allowed to create a namespace", func() {
		c := root.start(volumes, "FAIL_CALLS=unshare ", "FAIL_ERRNO=1")
		Expect(c.wait()).To(Succeed())
		Expect(c.output.String()).To(HaveSuffix("vm-start: cannot create a cgroup namespace, keeping the container's cgroups: " +
			"unshare : operation not permitted\n"))
	})
})

var _ = Describe("A VM that waits for its disk", func() {
	DescribeTable("exits after a signal to stop", func(signal unix.Signal) {
		root := newStemcellRoot()
		root.write("bosh/ephemeral-disk/vcap/bosh/agent.json", "{}")
		root.write("bosh/ephemeral-disk/vcap/bosh/managed_disk_settings.json", disk1)
		c := root.start(volumes)
		Eventually(c.output.String).Should(ContainSubstring("waiting for disk " + disk1))
		Expect(c.command.Process.Signal(signal)).To(Succeed())
		Expect(c.wait()).To(MatchError("exit status 1"))
		Expect(c.output.String()).To(HaveSuffix("error: stopped before the init program started\n"))
		Expect(root.calls()).NotTo(ContainElement(HavePrefix("init")))
	},
		Entry(nil, unix.SIGTERM), Entry(nil, unix.SIGINT), Entry(nil, unix.SIGQUIT), Entry("SIGRTMIN+3", system.SIGRTMin+3),
	)
})
