package node_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The cgroups of a VM", func() {
	var root fakeRoot
	BeforeEach(func() {
		root = newFakeRoot()
		root.mkdir("sys/fs/cgroup")
		root.addMount("sys/fs/cgroup")
		root.write("sys/fs/cgroup/node-file", "")
		root.write("init", "#!/bin/bash\necho \"init runs\" >>\"$FAKE_STATE/log\"\n")
		root.write("lib/systemd", root.read("init"))
	})

	startInit := func(init, script string) (int, string) {
		GinkgoHelper()
		return root.callFunction("init cgroups", `
			log() { printf '%s\n' "$*"; }
			`+script+`
			exec_init "$root/`+init+`"`, "TMPDIR="+root.path("tmp"))
	}
	expectInit := func(init string) {
		GinkgoHelper()
		status, output := startInit(init, "")
		Expect(status).To(BeZero(), output)
		Expect(output).To(BeEmpty())
		Expect(root.calls()).To(ContainElement(HavePrefix("init runs")))
	}

	DescribeTable("on cgroup v2 are the container's, and the node's are not visible", func(init, visibleRoot string) {
		root.setUpCgroup2("", "")
		root.setState("cgroup/"+visibleRoot+"/visible", "")
		expectInit(init)
		Expect(root.calls()[:7]).To(HaveExactElements(
			Equal("unshare --cgroup true"),
			HavePrefix("unshare --cgroup /bin/bash "),
			MatchRegexp(`^mount -t cgroup2 cgroup2 /tmp/tmp\.\w+$`),
			Equal("umount --lazy /sys/fs/cgroup"),
			MatchRegexp(`^mount --bind /tmp/tmp\.\w+`+visibleRoot+` /sys/fs/cgroup$`),
			MatchRegexp(`^umount /tmp/tmp\.\w+$`),
			HavePrefix("init runs"),
		))
		Expect(root.exists("sys/fs/cgroup/node-file")).To(BeFalse())
		Expect(root.exists("sys/fs/cgroup/visible")).To(BeTrue())
		Expect(os.ReadDir(root.path("tmp"))).To(BeEmpty())
	},
		Entry("from the empty cgroup for containers, with runit", "init", "/vm"),
		Entry("from their root, with systemd", "lib/systemd", ""),
	)

	It("delegate their controllers, with the processes in a child cgroup", func() {
		root.setUpCgroup2("0\n17\n", "memory\n")
		expectInit("init")
		Expect(root.readState("cgroup/cgroup.subtree_control")).To(Equal("+memory\n"))
		Expect(root.readState("cgroup/init/cgroup.procs")).To(Equal("17\n"), "without the process outside of the PID namespace")
		Expect(root.readState("cgroup/vm/cgroup.subtree_control")).To(Equal("+memory\n"))
	})

	It("show the limits of the VM, also in the cgroup with its processes", func() {
		root.setUpCgroup2("17\n", "memory\n")
		root.setState("cgroup/memory.max", "536870912\n")
		expectInit("init")
		for _, group := range []string{"vm", "vm/init"} {
			Expect(root.readState("cgroup/"+group+"/memory.max")).To(Equal("536870912\n"), group)
			Expect(root.hasState("cgroup/"+group+"/cpu.max")).To(BeFalse(), group)
		}
	})

	It("are created by systemd itself", func() {
		root.setUpCgroup2("17\n", "memory\n")
		expectInit("lib/systemd")
		Expect(root.readState("cgroup/cgroup.subtree_control")).To(BeEmpty())
		Expect(root.hasState("cgroup/init")).To(BeFalse())
	})

	It("are created after the exit of a process that the container runtime just started", func() {
		root.setUpCgroup2("17\n", "memory\n")
		status, output := startInit("init", `
			enable_controllers() { [[ ! -s $1/cgroup.procs ]] || printf 'memory '; }
			sleep() { : >"$FAKE_STATE/cgroup/cgroup.procs"; }
			mount_cgroups "$root/init"; exit`)
		Expect(status).To(BeZero())
		Expect(output).To(BeEmpty())
	})

	It("stay without limits for containers if a controller cannot be delegated, and the VM starts", func() {
		root.setUpCgroup2("", "cpu\n")
		Expect(os.Remove(filepath.Join(root.state, "cgroup/cgroup.subtree_control"))).To(Succeed())
		Expect(os.Mkdir(filepath.Join(root.state, "cgroup/cgroup.subtree_control"), 0o755)).To(Succeed())
		status, output := startInit("init", "")
		Expect(status).To(BeZero())
		Expect(output).To(Equal("containers in the VM cannot have their own limits: cannot delegate these controllers of the VM's cgroup: cpu \n"))
		Expect(root.calls()).To(ContainElement(HavePrefix("init runs")))
	})

	It("are the container runtime's if the container is not allowed to mount, and the VM starts", func() {
		root.setUpCgroup2("17\n", "memory\n")
		root.setState("exit/mount", "32")
		status, output := startInit("init", "")
		Expect(status).To(BeZero())
		Expect(output).To(Equal("cannot mount cgroup v2, keeping the container's /sys/fs/cgroup: mount: injected failure\n"))
		Expect(root.exists("sys/fs/cgroup/node-file")).To(BeTrue())
		Expect(os.ReadDir(root.path("tmp"))).To(BeEmpty())
	})

	It("are the container runtime's if the container is not allowed to create a namespace, and the VM starts", func() {
		root.setState("exit/unshare", "1")
		status, output := startInit("init", "")
		Expect(status).To(BeZero())
		Expect(output).To(Equal("cannot create a cgroup namespace, keeping the container's cgroups: unshare: injected failure\n"))
		Expect(root.calls()).To(HaveExactElements("unshare --cgroup true", HavePrefix("init runs")))
	})

	Describe("on cgroup v1, which is read-only in an unprivileged container", func() {
		BeforeEach(func() {
			root.setState("cgroup-type", "tmpfs\n")
			root.write("proc/self/mounts", "tmpfs /sys/fs/cgroup tmpfs ro,nosuid 0 0\ncgroup /sys/fs/cgroup/memory cgroup ro,nosuid,memory 0 0\n"+
				"cgroup /sys/fs/cgroup/pids cgroup rw,nosuid,pids 0 0\n")
		})

		It("are made writable", func() {
			expectInit("init")
			Expect(root.calls()).To(HaveExactElements("unshare --cgroup true", HavePrefix("unshare --cgroup /bin/bash "),
				"mount -o remount,bind,rw /sys/fs/cgroup/memory", HavePrefix("init runs")))
		})

		It("stay read-only if the container is not allowed to mount, and the VM starts", func() {
			root.setState("exit/mount", "32")
			status, output := startInit("init", "")
			Expect(status).To(BeZero())
			Expect(output).To(Equal("cannot make /sys/fs/cgroup/memory writable: mount: injected failure\n"))
			Expect(root.calls()).To(ContainElement(HavePrefix("init runs")))
		})
	})

	It("on cgroup v1 are in a namespace, and stay mounted", func() {
		root.setState("cgroup-type", "tmpfs\n")
		expectInit("init")
		Expect(root.calls()).To(HaveExactElements("unshare --cgroup true", HavePrefix("unshare --cgroup /bin/bash "), HavePrefix("init runs")))
	})
})

// setUpCgroup2 creates the container's cgroup v2, with these processes and controllers.
func (f fakeRoot) setUpCgroup2(processes, controllers string) {
	GinkgoHelper()
	f.setState("cgroup-type", "cgroup2fs\n")
	Expect(os.Mkdir(filepath.Join(f.state, "cgroup"), 0o755)).To(Succeed())
	f.setState("cgroup/cgroup.procs", processes)
	f.setState("cgroup/cgroup.controllers", controllers)
	f.setState("cgroup/cgroup.subtree_control", "")
	// The kernel creates these files with a cgroup.
	Expect(os.Mkdir(filepath.Join(f.state, "cgroup/vm"), 0o755)).To(Succeed())
	f.setState("cgroup/vm/cgroup.procs", "")
	f.setState("cgroup/vm/cgroup.controllers", controllers)
}
