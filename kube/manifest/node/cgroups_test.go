package node_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A machine's cgroups", func() {
	var w fakeRoot
	BeforeEach(func() {
		w = newFakeRoot()
		w.mkdir("sys/fs/cgroup")
		w.addMount("sys/fs/cgroup")
		w.write("sys/fs/cgroup/of-the-node", "")
		w.write("init", "#!/bin/bash\necho \"init is $$\" >>\"$STAND_INS/log\"\n")
		w.write("lib/systemd", w.read("init"))
	})

	// inTree has the container's tree be of version 2, with these processes and controllers.
	setUpCgroup2 := func(processes, controllers string) {
		GinkgoHelper()
		w.setState("cgroups", "cgroup2fs\n")
		Expect(os.Mkdir(filepath.Join(w.state, "cgroup"), 0o755)).To(Succeed())
		w.setState("cgroup/cgroup.procs", processes)
		w.setState("cgroup/cgroup.controllers", controllers)
		w.setState("cgroup/cgroup.subtree_control", "")
		// The kernel makes these with the cgroup.
		Expect(os.Mkdir(filepath.Join(w.state, "cgroup/machine"), 0o755)).To(Succeed())
		w.setState("cgroup/machine/cgroup.procs", "")
		w.setState("cgroup/machine/cgroup.controllers", controllers)
	}
	startInit := func(init, more string) (int, string) {
		GinkgoHelper()
		return w.callFunction("init cgroups", `
			say() { printf '%s\n' "$*"; }
			`+more+`
			become "$root/`+init+`"`, "TMPDIR="+w.path("tmp"))
	}
	expectInit := func(init string) {
		GinkgoHelper()
		status, output := startInit(init, "")
		Expect(status).To(BeZero(), output)
		Expect(output).To(BeEmpty())
		Expect(w.calls()).To(ContainElement(HavePrefix("init is ")))
	}

	DescribeTable("are the container's on cgroup v2, and none of the node's is there any more", func(init, visibleRoot string) {
		setUpCgroup2("", "")
		w.setState("cgroup/"+visibleRoot+"/shown", "")
		expectInit(init)
		Expect(w.calls()[:7]).To(HaveExactElements(
			Equal("unshare --cgroup true"),
			HavePrefix("unshare --cgroup /bin/bash "),
			MatchRegexp(`^mount -t cgroup2 cgroup2 /tmp/tmp\.\w+$`),
			Equal("umount --lazy /sys/fs/cgroup"),
			MatchRegexp(`^mount --bind /tmp/tmp\.\w+`+visibleRoot+` /sys/fs/cgroup$`),
			MatchRegexp(`^umount /tmp/tmp\.\w+$`),
			HavePrefix("init is "),
		))
		Expect(w.exists("sys/fs/cgroup/of-the-node")).To(BeFalse())
		Expect(w.exists("sys/fs/cgroup/shown")).To(BeTrue())
		Expect(os.ReadDir(w.path("tmp"))).To(BeEmpty())
	},
		Entry("with runit an empty one, for containers", "init", "/machine"),
		Entry("with systemd from their top", "lib/systemd", ""),
	)

	It("hand out their controllers, with the processes in one below", func() {
		setUpCgroup2("0\n17\n", "memory\n")
		expectInit("init")
		Expect(w.readState("cgroup/cgroup.subtree_control")).To(Equal("+memory\n"))
		Expect(w.readState("cgroup/init/cgroup.procs")).To(Equal("17\n"), "and not whose number is not known here")
		Expect(w.readState("cgroup/machine/cgroup.subtree_control")).To(Equal("+memory\n"))
	})

	It("show the machine's own limits, also by the name of the cgroup with its processes", func() {
		setUpCgroup2("17\n", "memory\n")
		w.setState("cgroup/memory.max", "536870912\n")
		expectInit("init")
		for _, group := range []string{"machine", "machine/init"} {
			Expect(w.readState("cgroup/"+group+"/memory.max")).To(Equal("536870912\n"), group)
			Expect(w.hasState("cgroup/"+group+"/cpu.max")).To(BeFalse(), group)
		}
	})

	It("are left to systemd to lay out", func() {
		setUpCgroup2("17\n", "memory\n")
		expectInit("lib/systemd")
		Expect(w.readState("cgroup/cgroup.subtree_control")).To(BeEmpty())
		Expect(w.hasState("cgroup/init")).To(BeFalse())
	})

	It("wait for what a runtime has begun to run in the container", func() {
		setUpCgroup2("17\n", "memory\n")
		status, output := startInit("init", `
			missing_controllers() { [[ ! -s $1/cgroup.procs ]] || printf 'memory '; }
			sleep() { : >"$STAND_INS/cgroup/cgroup.procs"; }
			take_cgroups "$root/init"; exit`)
		Expect(status).To(BeZero())
		Expect(output).To(BeEmpty())
	})

	It("are said to hand out less, where one cannot be had below, and the machine starts", func() {
		setUpCgroup2("", "cpu\n")
		Expect(os.Remove(filepath.Join(w.state, "cgroup/cgroup.subtree_control"))).To(Succeed())
		Expect(os.Mkdir(filepath.Join(w.state, "cgroup/cgroup.subtree_control"), 0o755)).To(Succeed())
		status, output := startInit("init", "")
		Expect(status).To(BeZero())
		Expect(output).To(Equal("containers in it have no limits of their own: its cgroup does not hand out cpu \n"))
		Expect(w.calls()).To(ContainElement(HavePrefix("init is ")))
	})

	It("are as the container was given them where it may not mount, and the machine starts", func() {
		setUpCgroup2("17\n", "memory\n")
		w.setState("exit/mount", "32")
		status, output := startInit("init", "")
		Expect(status).To(BeZero())
		Expect(output).To(Equal("/sys/fs/cgroup is as its container was given it: mount: as the test wants it\n"))
		Expect(w.exists("sys/fs/cgroup/of-the-node")).To(BeTrue())
		Expect(os.ReadDir(w.path("tmp"))).To(BeEmpty())
	})

	It("are as the container was given them where it may have no namespace, and the machine starts", func() {
		w.setState("exit/unshare", "1")
		status, output := startInit("init", "")
		Expect(status).To(BeZero())
		Expect(output).To(Equal("it has the cgroups that its container was given: unshare: as the test wants it\n"))
		Expect(w.calls()).To(HaveExactElements("unshare --cgroup true", HavePrefix("init is ")))
	})

	Describe("on cgroup v1, where a container that is not privileged may only look at them", func() {
		BeforeEach(func() {
			w.setState("cgroups", "tmpfs\n")
			w.write("proc/self/mounts", "tmpfs /sys/fs/cgroup tmpfs ro,nosuid 0 0\ncgroup /sys/fs/cgroup/memory cgroup ro,nosuid,memory 0 0\n"+
				"cgroup /sys/fs/cgroup/pids cgroup rw,nosuid,pids 0 0\n")
		})

		It("are the machine's to divide", func() {
			expectInit("init")
			Expect(w.calls()).To(HaveExactElements("unshare --cgroup true", HavePrefix("unshare --cgroup /bin/bash "),
				"mount -o remount,bind,rw /sys/fs/cgroup/memory", HavePrefix("init is ")))
		})

		It("stay as they are where it may not mount, and the machine starts", func() {
			w.setState("exit/mount", "32")
			status, output := startInit("init", "")
			Expect(status).To(BeZero())
			Expect(output).To(Equal("/sys/fs/cgroup/memory stays as its container was given it: mount: as the test wants it\n"))
			Expect(w.calls()).To(ContainElement(HavePrefix("init is ")))
		})
	})

	It("have names of their own on cgroup v1, where they are mounted already", func() {
		w.setState("cgroups", "tmpfs\n")
		expectInit("init")
		Expect(w.calls()).To(HaveExactElements("unshare --cgroup true", HavePrefix("unshare --cgroup /bin/bash "), HavePrefix("init is ")))
	})
})
