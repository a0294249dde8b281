package node_test

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node"
)

var _ = Describe("The resources of a VM in /proc", func() {
	var root fakeRoot
	BeforeEach(func() {
		root = newStemcellRoot()
		root.mkdir("bosh/lxcfs")
		for _, file := range []string{"meminfo", "uptime"} {
			root.write("proc/"+file, "of the node\n")
		}
	})

	startLXCFS := func() {
		for _, file := range []string{"meminfo", "uptime"} {
			root.write("bosh/lxcfs/proc/"+file, "of the VM\n")
		}
	}
	// reports returns a condition: all files in /proc have this content. A file is missing for a moment while it is mounted.
	reports := func(expected string) func() bool {
		return func() bool {
			for _, file := range []string{"meminfo", "uptime"} {
				if content, _ := os.ReadFile(root.path("proc/" + file)); string(content) != expected {
					return false
				}
			}
			return true
		}
	}
	// stopLXCFS makes the mounted files unreadable. The mount of a file is a link in these tests.
	stopLXCFS := func() { root.remove("bosh/lxcfs/proc") }
	startVM := func() *startedProgram {
		root.write("usr/sbin/runsvdir-start", "#!/bin/bash\n: >\"$FAKE_STATE/started\"; read -r <\"$FAKE_STATE/resume\"\n")
		program := root.start(node.VMStart(), "TMPDIR="+root.path("tmp"), "LXCFS_CHECK_PERIOD=0.01")
		program.waitUntil(func() bool { return root.hasState("started") })
		return program
	}

	It("are its own when the init program starts, if the node has lxcfs", func() {
		startLXCFS()
		root.write("usr/sbin/runsvdir-start", "#!/bin/bash\ncat \"$BOSH_NODE_ROOT/proc/meminfo\" >>\"$FAKE_STATE/log\"; kill 0\n")
		root.start(node.VMStart(), "TMPDIR="+root.path("tmp")).wait()
		Expect(root.calls()).To(ContainElement("of the VM"))
	})

	It("are the node's while lxcfs does not run, without any restart of the VM", func() {
		program := startVM()
		program.waitUntil(reports("of the node\n"))
		startLXCFS()
		program.waitUntil(reports("of the VM\n"))
		stopLXCFS()
		program.waitUntil(reports("of the node\n"))
		startLXCFS()
		program.waitUntil(reports("of the VM\n"))
		program.kill()
		Expect(program.out.String()).To(SatisfyAll(
			ContainSubstring("lxcfs is not mounted at pods.lxcfs_path on the node"), ContainSubstring("lxcfs has stopped on the node")))
	})

	It("are updated by a process, and the init program does not inherit its files", func() {
		root.write("usr/sbin/runsvdir-start", "#!/bin/bash\nls -l /proc/$$/fd >>\"$FAKE_STATE/log\"; kill 0\n")
		root.start(node.VMStart(), "TMPDIR="+root.path("tmp")).wait()
		Expect(root.calls()).To(ContainElement(MatchRegexp(` 2 -> `)))
		Expect(root.calls()).NotTo(ContainElement(MatchRegexp(` 1[0-9] -> pipe:`)))
	})

	It("are the node's if the container may not mount, which is logged", func() {
		startLXCFS()
		status, output := root.callFunction("pause lxcfs", `
			log() { printf '%s\n' "$*"; }
			mount() { return 1; }
			maintain_lxcfs_mounts() { :; }
			start_lxcfs_mounts`)
		Expect(status).To(BeZero())
		Expect(output).To(ContainSubstring("or the container may not mount"))
		Expect(reports("of the node\n")()).To(BeTrue())
	})
})
