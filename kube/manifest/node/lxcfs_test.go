package node_test

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

var _ = Describe("A machine's sizes", func() {
	var w fakeRoot
	BeforeEach(func() {
		w = newStemcellRoot()
		w.mkdir("bosh/lxcfs")
		for _, each := range []string{"meminfo", "uptime"} {
			w.write("proc/"+each, "of the node\n")
		}
	})

	startLXCFS := func() {
		for _, each := range []string{"meminfo", "uptime"} {
			w.write("bosh/lxcfs/proc/"+each, "of the machine\n")
		}
	}
	// says tells whose sizes are in /proc, in every file. One that is being mounted is not there for a moment.
	reports := func(expected string) func() bool {
		return func() bool {
			for _, file := range []string{"meminfo", "uptime"} {
				if content, _ := os.ReadFile(w.path("proc/" + file)); string(content) != expected {
					return false
				}
			}
			return true
		}
	}
	// ends has what is mounted of lxcfs be without a server. That of a file is a link to it here.
	stopLXCFS := func() { w.remove("bosh/lxcfs/proc") }
	startVM := func() *startedProgram {
		w.write("usr/sbin/runsvdir-start", "#!/bin/bash\n: >\"$STAND_INS/up\"; read -r <\"$STAND_INS/go\"\n")
		program := w.start(node.VMStart(), "TMPDIR="+w.path("tmp"), "SIZES_PERIOD=0.01")
		program.waitUntil(func() bool { return w.hasState("up") })
		return program
	}

	It("are its own from the start of the init program on, where the node has lxcfs", func() {
		startLXCFS()
		w.write("usr/sbin/runsvdir-start", "#!/bin/bash\ncat \"$BOSH_NODE_ROOT/proc/meminfo\" >>\"$STAND_INS/log\"; kill 0\n")
		w.start(node.VMStart(), "TMPDIR="+w.path("tmp")).wait()
		Expect(w.calls()).To(ContainElement("of the machine"))
	})

	It("are the node's for as long as lxcfs does not run, and nothing restarts", func() {
		program := startVM()
		program.waitUntil(reports("of the node\n"))
		startLXCFS()
		program.waitUntil(reports("of the machine\n"))
		stopLXCFS()
		program.waitUntil(reports("of the node\n"))
		startLXCFS()
		program.waitUntil(reports("of the machine\n"))
		program.kill()
		Expect(program.out.String()).To(SatisfyAll(
			ContainSubstring("the node has no lxcfs where pods.lxcfs says"), ContainSubstring("the node's lxcfs has ended")))
	})

	It("are watched over with nothing that the init program inherits", func() {
		w.write("usr/sbin/runsvdir-start", "#!/bin/bash\nls -l /proc/$$/fd >>\"$STAND_INS/log\"; kill 0\n")
		w.start(node.VMStart(), "TMPDIR="+w.path("tmp")).wait()
		Expect(w.calls()).To(ContainElement(MatchRegexp(` 2 -> `)))
		Expect(w.calls()).NotTo(ContainElement(MatchRegexp(` 1[0-9] -> pipe:`)))
	})

	It("are the node's where the machine may not mount, and it says so", func() {
		startLXCFS()
		status, output := w.callFunction("pause sizes", `
			say() { printf '%s\n' "$*"; }
			mount() { return 1; }
			keep_own_sizes() { :; }
			tell_own_sizes`)
		Expect(status).To(BeZero())
		Expect(output).To(ContainSubstring("or the machine may not mount"))
		Expect(reports("of the node\n")()).To(BeTrue())
	})
})
