package node_test

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

var _ = Describe("A machine's sizes", func() {
	var w world
	BeforeEach(func() {
		w = stemcell()
		w.folder("bosh/lxcfs")
		for _, each := range []string{"meminfo", "uptime"} {
			w.write("proc/"+each, "of the node\n")
		}
	})

	answers := func() {
		for _, each := range []string{"meminfo", "uptime"} {
			w.write("bosh/lxcfs/proc/"+each, "of the machine\n")
		}
	}
	// says tells whose sizes are in /proc, in every file. One that is being mounted is not there for a moment.
	says := func(whose string) func() bool {
		return func() bool {
			for _, each := range []string{"meminfo", "uptime"} {
				if content, _ := os.ReadFile(w.path("proc/" + each)); string(content) != whose {
					return false
				}
			}
			return true
		}
	}
	// ends has what is mounted of lxcfs be without a server. That of a file is a link to it here.
	ends := func() { w.remove("bosh/lxcfs/proc") }
	keeps := func() *running {
		w.write("usr/sbin/runsvdir-start", "#!/bin/bash\n: >\"$STAND_INS/up\"; read -r <\"$STAND_INS/go\"\n")
		machine := w.start(node.MachineStart(), "TMPDIR="+w.path("tmp"), "SIZES_PERIOD=0.01")
		machine.until(func() bool { return w.knows("up") })
		return machine
	}

	It("are its own from the start of the init program on, where the node has lxcfs", func() {
		answers()
		w.write("usr/sbin/runsvdir-start", "#!/bin/bash\ncat \"$BOSH_NODE_ROOT/proc/meminfo\" >>\"$STAND_INS/log\"; kill 0\n")
		w.start(node.MachineStart(), "TMPDIR="+w.path("tmp")).wait()
		Expect(w.calls()).To(ContainElement("of the machine"))
	})

	It("are the node's for as long as lxcfs does not run, and nothing restarts", func() {
		machine := keeps()
		machine.until(says("of the node\n"))
		answers()
		machine.until(says("of the machine\n"))
		ends()
		machine.until(says("of the node\n"))
		answers()
		machine.until(says("of the machine\n"))
		machine.die()
		Expect(machine.out.String()).To(SatisfyAll(
			ContainSubstring("the node has no lxcfs where pods.lxcfs says"), ContainSubstring("the node's lxcfs has ended")))
	})

	It("are watched over with nothing that the init program inherits", func() {
		w.write("usr/sbin/runsvdir-start", "#!/bin/bash\nls -l /proc/$$/fd >>\"$STAND_INS/log\"; kill 0\n")
		w.start(node.MachineStart(), "TMPDIR="+w.path("tmp")).wait()
		Expect(w.calls()).To(ContainElement(MatchRegexp(` 2 -> `)))
		Expect(w.calls()).NotTo(ContainElement(MatchRegexp(` 1[0-9] -> pipe:`)))
	})

	It("are the node's where the machine may not mount, and it says so", func() {
		answers()
		status, said := w.call("pause sizes", `
			say() { printf '%s\n' "$*"; }
			mount() { return 1; }
			keep_own_sizes() { :; }
			tell_own_sizes`)
		Expect(status).To(BeZero())
		Expect(said).To(ContainSubstring("or the machine may not mount"))
		Expect(says("of the node\n")()).To(BeTrue())
	})
})
