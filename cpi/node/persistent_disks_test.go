package node_test

import (
	"os"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node"
)

var _ = Describe("The persistent disk of a VM that starts", func() {
	const (
		mountStore = "mount /dev/bosh/disk-1 /var/vcap/store"
		record     = "var/vcap/bosh/managed_disk_settings.json"
		hints      = "var/vcap/bosh/persistent_disk_hints.json"
	)

	var root fakeRoot
	BeforeEach(func() {
		root = newStemcellRoot()
		root.write(record, "disk-1")
		root.write(hints, `{"disk-1": {"ID": "disk-1"}}`)
		root.addDevice("dev/bosh/disk-1", 8, 16, mib, "")
	})

	lockDisk1 := func() {
		GinkgoHelper()
		root.lockDisk("disk-1")
	}
	// startWaiting starts the VM, and returns when the VM waits for its disk.
	startWaiting := func() *startedProgram {
		GinkgoHelper()
		r := root.start(node.VMStart())
		r.waitUntil(func() bool {
			return strings.Contains(r.out.String(), "waiting for disk disk-1 to be attached before any job may start")
		})
		Expect(root.calls()).NotTo(ContainElement(HavePrefix("init")))
		return r
	}

	It("is not waited for after a signal to stop", func() {
		r := startWaiting()
		r.signal(syscall.SIGTERM)
		Expect(r.wait()).To(Equal(1))
		Expect(r.out.String()).To(HaveSuffix("vm-start: stopped before the init program started\n"))
	})

	It("is mounted before the init program starts", func() {
		lockDisk1()
		status, output := root.runVMStart()
		Expect(status).To(BeZero())
		Expect(output).To(HaveSuffix("vm-start: disk disk-1 is mounted at /var/vcap/store\n"))
		calls := root.calls()
		Expect(calls[len(calls)-6:]).To(Equal([]string{
			"mount -o remount,bind,dev,rw /dev/bosh", mountStore, makeReserve, "unshare --cgroup true", enterCgroupNamespace, "init in kubernetes",
		}))
	})

	It("is mounted with the options from the director", func() {
		lockDisk1()
		root.write("bosh/settings/mount-options", "noatime,commit=30")
		root.expectBoot()
		Expect(root.calls()).To(ContainElement("mount /dev/bosh/disk-1 /var/vcap/store -o noatime,commit=30"))
	})

	It("is not mounted if the VM has none", func() {
		Expect(os.Remove(root.path(record))).To(Succeed())
		root.write(hints, "{}")
		root.expectBoot()
		root.expectInitStarted()
		Expect(root.calls()).NotTo(ContainElement(mountStore))
	})

	It("is not waited for if it was detached, and the agent's record is removed", func() {
		root.write(hints, `{"disk-10": {"ID": "disk-1"}}`)
		root.addDevice("dev/bosh/disk-10", 8, 32, mib, "")
		root.lockDisk("disk-10")
		status, output := root.runVMStart()
		Expect(status).To(BeZero())
		Expect(output).To(ContainSubstring("the VM no longer has disk disk-1 according to the agent: removing the record that it was mounted"))
		Expect(root.exists(record)).To(BeFalse())
		Expect(root.calls()).NotTo(ContainElement(mountStore))
		root.expectInitStarted()
	})

	DescribeTable("is mounted if the agent's file of disks is unusable", func(write func()) {
		lockDisk1()
		write()
		root.expectBoot()
		Expect(root.calls()).To(ContainElement(mountStore))
	},
		Entry("because it does not exist", func() { Expect(os.Remove(root.path(hints))).To(Succeed()) }),
		Entry("because it is incomplete", func() { root.write(hints, "") }),
	)

	It("is not mounted in the middle of a migration to another disk, and no job starts", func() {
		lockDisk1()
		root.write(hints, `{"disk-1": {"ID": "disk-1"}, "disk-2": {"ID": "disk-2"}}`)
		status, output := root.runVMStart()
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("the VM stopped in the middle of a migration between its disks; " +
			"recreate the VM, which keeps the data of its disks [disk-migration-interrupted]"))
		Expect(root.calls()).NotTo(ContainElements(mountStore))
		Expect(root.calls()).NotTo(ContainElement(HavePrefix("init")))
		Expect(root.exists(record)).To(BeTrue())
	})

	It("is mounted if a power failure left the agent's record empty", func() {
		lockDisk1()
		root.write(record, "")
		root.expectBoot()
		Expect(root.calls()).To(ContainElement(mountStore))
		Expect(root.read(record)).To(Equal("disk-1"))
	})

	DescribeTable("is not mounted, and no job starts, if its record is empty", func(content string) {
		lockDisk1()
		root.write(record, "")
		root.write(hints, content)
		status, output := root.runVMStart()
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("the agent's record of its mounted disk is damaged, for example by a power failure; recreate the VM"))
		Expect(root.calls()).NotTo(ContainElement(HavePrefix("init")))
	},
		Entry("and the agent's file of disks is empty, too", ""),
		Entry("and the agent knows several disks", `{"disk-1": {"ID": "disk-1"}, "disk-2": {"ID": "disk-2"}}`),
	)

	It("is not waited for if its record is empty and the agent knows no disk", func() {
		root.write(record, "")
		root.write(hints, "{}")
		root.expectBoot()
		root.expectInitStarted()
		Expect(root.calls()).NotTo(ContainElement(mountStore))
	})

	DescribeTable("is waited for", func(prepare func()) {
		prepare()
		r := startWaiting()
		Expect(root.calls()).NotTo(ContainElement(mountStore))
		root.write("dev/bosh/disk-1", "b 8 16\n")
		lockDisk1()
		Expect(r.wait()).To(BeZero())
		Expect(root.calls()).To(ContainElement(mountStore))
		root.expectInitStarted()
	},
		Entry("while its node is from an earlier boot", func() {}),
		Entry("while its node is from a killed attachment", func() { root.write("dev/bosh/.disk-1.lock", "") }),
		Entry("while it has no node", func() { Expect(os.Remove(root.path("dev/bosh/disk-1"))).To(Succeed()) }),
	)

	It("is mounted on retry after a failure, which is logged", func() {
		lockDisk1()
		root.setState("exit/mount", "32")
		root.setState("mounts", root.path("dev/bosh")+" - -\n")
		root.write("bosh/ephemeral-disk/vcap/bosh/agent.json", "{}")
		status, output := root.callFunction("device lock json persistent-disks", `
			log() { echo "$*"; }
			sleep() { rm -f "$FAKE_STATE/exit/mount"; }
			settings=$root/bosh/settings devices=$root/dev/bosh agent_dir=$root/var/vcap/bosh
			mount_persistent_disk`)
		Expect(status).To(BeZero())
		Expect(output).To(Equal("waiting for disk disk-1 to be attached before any job may start: mount: injected failure\n" +
			"disk disk-1 is mounted at /var/vcap/store\n"))
	})

	Describe("with several disks", func() {
		const waitOtherDisks = `
			log() { echo "$*"; }
			settings=$root/bosh/settings devices=$root/dev/bosh agent_dir=$root/var/vcap/bosh
			wait_for_other_disks`
		BeforeEach(func() {
			root.setState("mounts", root.path("dev/bosh")+" - -\n")
			root.write(hints, "{}")
		})

		It("is waited for until it is attached", func() {
			root.write(hints, `{"disk-1": {"ID": "disk-1"}}`)
			lockDisk1()
			Expect(os.Remove(root.path("dev/bosh/disk-1"))).To(Succeed())
			status, output := root.callFunction("device lock json persistent-disks",
				`sleep() { echo "b 8 16" >"$root/dev/bosh/disk-1"; };`+waitOtherDisks)
			Expect(status).To(BeZero())
			Expect(output).To(Equal("waiting at most one minute for disk disk-1 to be attached\n"))
		})

		It("is waited for if it is a dynamic disk, for one minute at most", func() {
			root.write("var/vcap/data/dynamic_disks/disk-1", "")
			status, output := root.callFunction("device lock json persistent-disks", `
				slept=0; sleep() { slept=$((slept + 1)); };`+waitOtherDisks+`; echo "$slept times 0.2 s"`)
			Expect(status).To(BeZero())
			Expect(output).To(Equal("waiting at most one minute for disk disk-1 to be attached\n" +
				"starting without disk disk-1\n300 times 0.2 s\n"))
		})

		It("is not waited for if it is attached", func() {
			lockDisk1()
			root.write("var/vcap/data/dynamic_disks/disk-1", "")
			_, output := root.callFunction("device lock json persistent-disks", "sleep() { exit 1; };"+waitOtherDisks)
			Expect(output).To(BeEmpty())
		})
	})

	Describe("of a VM with disk_strategy: recreate", func() {
		BeforeEach(func() { root.setState("mounts", "") })

		It("is a volume of the Pod, and is mounted without a lock", func() {
			root.expectBoot()
			Expect(root.calls()).To(ContainElement(mountStore))
			Expect(root.calls()).NotTo(ContainElement(ContainSubstring("remount")))
			root.expectInitStarted()
		})

		It("is mounted if it is a directory", func() {
			Expect(os.Remove(root.path("dev/bosh/disk-1"))).To(Succeed())
			root.mkdir("dev/bosh/disk-1")
			root.addMount("dev/bosh/disk-1")
			root.expectBoot()
			Expect(root.calls()).To(ContainElement(mountStore))
		})

		It("is not waited for if it is no longer a volume of the Pod, and the agent's record is removed", func() {
			Expect(os.Remove(root.path("dev/bosh/disk-1"))).To(Succeed())
			status, output := root.runVMStart()
			Expect(status).To(BeZero())
			Expect(output).To(ContainSubstring("the VM no longer has disk disk-1 as a volume: removing the record that it was mounted"))
			Expect(root.exists(record)).To(BeFalse())
			root.expectInitStarted()
		})
	})
})

// lockDisk takes the lock of the disk's attachment until the test ends.
func (f fakeRoot) lockDisk(disk string) {
	GinkgoHelper()
	lock, err := os.Create(f.path("dev/bosh/." + disk + ".lock"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(lock.Close)
	Expect(syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)).To(Succeed())
}
