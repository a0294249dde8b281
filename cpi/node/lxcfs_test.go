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
	// hasContent returns a condition: all files in /proc have this content. A file does not exist for a moment while it is mounted.
	hasContent := func(expected string) func() bool {
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

	It("are the VM's when the init program starts, if the node has lxcfs", func() {
		startLXCFS()
		root.write("usr/sbin/runsvdir-start", "#!/bin/bash\ncat \"$BOSH_NODE_ROOT/proc/meminfo\" >>\"$FAKE_STATE/log\"; kill 0\n")
		root.start(node.VMStart(), "TMPDIR="+root.path("tmp")).wait()
		Expect(root.calls()).To(ContainElement("of the VM"))
	})

	It("do not keep user namespaces from mounting procfs: there is one without covered files", func() {
		startLXCFS()
		root.write("usr/sbin/runsvdir-start", "#!/bin/bash\nkill 0\n")
		root.start(node.VMStart(), "TMPDIR="+root.path("tmp")).wait()
		Expect(root.calls()).To(ContainElement("mount -t proc -o nosuid,nodev,noexec proc /bosh/nested/proc"))
		Expect(os.Stat(root.path("bosh/nested"))).To(HaveField("Mode()", os.ModeDir|0o700))
	})

	It("are the node's while lxcfs is not running, without any restart of the VM", func() {
		program := startVM()
		program.waitUntil(hasContent("of the node\n"))
		startLXCFS()
		program.waitUntil(hasContent("of the VM\n"))
		stopLXCFS()
		program.waitUntil(hasContent("of the node\n"))
		startLXCFS()
		program.waitUntil(hasContent("of the VM\n"))
		program.kill()
		Expect(program.out.String()).To(SatisfyAll(
			ContainSubstring("lxcfs is not mounted at pods.lxcfs_path on the node"), ContainSubstring("lxcfs stopped on the node")))
	})

	It("are updated by a process with files that the init program does not inherit", func() {
		root.write("usr/sbin/runsvdir-start", "#!/bin/bash\nls -l /proc/$$/fd >>\"$FAKE_STATE/log\"; kill 0\n")
		root.start(node.VMStart(), "TMPDIR="+root.path("tmp")).wait()
		Expect(root.calls()).To(ContainElement(MatchRegexp(` 2 -> `)))
		Expect(root.calls()).NotTo(ContainElement(MatchRegexp(` 1[0-9] -> pipe:`)))
	})

	It("are the node's, with a log message, if the container is not allowed to mount", func() {
		startLXCFS()
		status, output := root.callFunction("pause lxcfs", `
			log() { printf '%s\n' "$*"; }
			mount() { return 1; }
			maintain_lxcfs_mounts() { :; }
			start_lxcfs_mounts`)
		Expect(status).To(BeZero())
		Expect(output).To(ContainSubstring("or the container is not allowed to mount"))
		Expect(hasContent("of the node\n")()).To(BeTrue())
	})
})
