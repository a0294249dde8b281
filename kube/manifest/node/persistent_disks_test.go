package node_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

var _ = Describe("A machine's persistent disk at its start", func() {
	const (
		mountStore = "mount /dev/bosh/disk-1 /var/vcap/store"
		record     = "var/vcap/bosh/managed_disk_settings.json"
		hints      = "var/vcap/bosh/persistent_disk_hints.json"
	)

	var w fakeRoot
	BeforeEach(func() {
		w = newStemcellRoot()
		w.write(record, "disk-1")
		w.write(hints, `{"disk-1": {"ID": "disk-1"}}`)
		w.addDevice("dev/bosh/disk-1", 8, 16, mib, "")
	})

	// attach has an attachment hold a disk: it locks a file beside the node for as long as it lives.
	lockDisk := func(disk string) {
		GinkgoHelper()
		lock := w.path("dev/bosh/." + disk + ".lock")
		flock := exec.Command("flock", lock, "cat")
		in, err := flock.StdinPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(flock.Start()).To(Succeed())
		DeferCleanup(func() {
			_ = in.Close()
			_ = flock.Wait()
		})
		Eventually(func() error { return exec.Command("flock", "--nonblock", "--shared", lock, "true").Run() }).
			WithTimeout(programTimeout).ShouldNot(Succeed())
	}
	lockDisk1 := func() {
		GinkgoHelper()
		lockDisk("disk-1")
	}
	// waits starts the machine, and returns when it has said that it waits for its disk.
	startWaiting := func() *startedProgram {
		GinkgoHelper()
		r := w.start(node.VMStart())
		r.waitUntil(func() bool {
			return strings.Contains(r.out.String(), "waiting for disk disk-1 to be attached before any job may start")
		})
		Expect(w.calls()).NotTo(ContainElement(HavePrefix("init")))
		return r
	}

	It("is not waited for by a machine that is told to end", func() {
		r := startWaiting()
		r.signal(syscall.SIGTERM)
		Expect(r.wait()).To(Equal(1))
		Expect(r.out.String()).To(HaveSuffix("machine-start: told to end before the init program has started\n"))
	})

	It("is mounted before the init program starts", func() {
		lockDisk1()
		status, output := w.runVMStart()
		Expect(status).To(BeZero())
		Expect(output).To(HaveSuffix("machine-start: disk disk-1 is mounted at /var/vcap/store\n"))
		calls := w.calls()
		Expect(calls[len(calls)-6:]).To(Equal([]string{"mount -o remount,bind,dev,rw /dev/bosh", mountStore, makeReserve, "unshare --cgroup true", enterCgroupNamespace, "init in kubernetes"}))
	})

	It("is mounted with the options that the director gave", func() {
		lockDisk1()
		w.write("bosh/settings/mount-options", "noatime,commit=30")
		w.expectBoot()
		Expect(w.calls()).To(ContainElement("mount /dev/bosh/disk-1 /var/vcap/store -o noatime,commit=30"))
	})

	It("is not there for a machine that has none", func() {
		Expect(os.Remove(w.path(record))).To(Succeed())
		w.write(hints, "{}")
		w.expectBoot()
		w.expectInitStarted()
		Expect(w.calls()).NotTo(ContainElement(mountStore))
	})

	It("that was taken away is forgotten, and not waited for", func() {
		w.write(hints, `{"disk-10": {"ID": "disk-1"}}`)
		w.addDevice("dev/bosh/disk-10", 8, 32, mib, "")
		lockDisk("disk-10")
		status, output := w.runVMStart()
		Expect(status).To(BeZero())
		Expect(output).To(ContainSubstring("disk disk-1 was taken from this machine: forgetting that it was mounted"))
		Expect(w.exists(record)).To(BeFalse())
		Expect(w.calls()).NotTo(ContainElement(mountStore))
		w.expectInitStarted()
	})

	DescribeTable("is mounted though the agent's file about disks tells nothing", func(write func()) {
		lockDisk1()
		write()
		w.expectBoot()
		Expect(w.calls()).To(ContainElement(mountStore))
	},
		Entry("since it is gone", func() { Expect(os.Remove(w.path(hints))).To(Succeed()) }),
		Entry("since it was cut short", func() { w.write(hints, "") }),
	)

	It("in the middle of a migration to another is mounted by nobody, and no job starts", func() {
		lockDisk1()
		w.write(hints, `{"disk-1": {"ID": "disk-1"}, "disk-2": {"ID": "disk-2"}}`)
		status, output := w.runVMStart()
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("the machine ended in the middle of a migration between its disks; the VM has to be recreated"))
		Expect(w.calls()).NotTo(ContainElements(mountStore))
		Expect(w.calls()).NotTo(ContainElement(HavePrefix("init")))
		Expect(w.exists(record)).To(BeTrue())
	})

	It("is mounted though a power cut has left the agent's record of it empty", func() {
		lockDisk1()
		w.write(record, "")
		w.expectBoot()
		Expect(w.calls()).To(ContainElement(mountStore))
		Expect(w.read(record)).To(Equal("disk-1"))
	})

	DescribeTable("is mounted by nobody when its record is empty, and no job starts,", func(hinted string) {
		lockDisk1()
		w.write(record, "")
		w.write(hints, hinted)
		status, output := w.runVMStart()
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("the agent's record of the disk that it has mounted is damaged, as after a power cut: recreate the VM"))
		Expect(w.calls()).NotTo(ContainElement(HavePrefix("init")))
	},
		Entry("and so is what the agent knows of disks", ""),
		Entry("and the agent knows several", `{"disk-1": {"ID": "disk-1"}, "disk-2": {"ID": "disk-2"}}`),
	)

	It("is not looked for when its record is empty and the agent knows none", func() {
		w.write(record, "")
		w.write(hints, "{}")
		w.expectBoot()
		w.expectInitStarted()
		Expect(w.calls()).NotTo(ContainElement(mountStore))
	})

	DescribeTable("is waited for", func(missing func()) {
		missing()
		r := startWaiting()
		Expect(w.calls()).NotTo(ContainElement(mountStore))
		w.write("dev/bosh/disk-1", "b 8 16\n")
		lockDisk1()
		Expect(r.wait()).To(BeZero())
		Expect(w.calls()).To(ContainElement(mountStore))
		w.expectInitStarted()
	},
		Entry("while its node is one that an earlier boot has left", func() {}),
		Entry("while its node is one whose attachment has died", func() { w.write("dev/bosh/.disk-1.lock", "") }),
		Entry("while it has no node", func() { Expect(os.Remove(w.path("dev/bosh/disk-1"))).To(Succeed()) }),
	)

	It("is tried again when it cannot be mounted, and says why", func() {
		lockDisk1()
		w.setState("exit/mount", "32")
		w.setState("mounts", w.path("dev/bosh")+" - -\n")
		w.write("bosh/machine/vcap/bosh/agent.json", "{}")
		status, output := w.callFunction("device lock json store", `
			say() { echo "$*"; }
			sleep() { rm -f "$STAND_INS/exit/mount"; }
			given=$root/bosh/settings devices=$root/dev/bosh bosh=$root/var/vcap/bosh
			restore_store`)
		Expect(status).To(BeZero())
		Expect(output).To(Equal("waiting for disk disk-1 to be attached before any job may start: mount: as the test wants it\n" +
			"disk disk-1 is mounted at /var/vcap/store\n"))
	})

	Describe("beside others", func() {
		const waitOtherDisks = `
			say() { echo "$*"; }
			given=$root/bosh/settings devices=$root/dev/bosh bosh=$root/var/vcap/bosh
			await_others`
		BeforeEach(func() {
			w.setState("mounts", w.path("dev/bosh")+" - -\n")
			w.write(hints, "{}")
		})

		It("has one of several waited for, until it is there", func() {
			w.write(hints, `{"disk-1": {"ID": "disk-1"}}`)
			lockDisk1()
			Expect(os.Remove(w.path("dev/bosh/disk-1"))).To(Succeed())
			status, output := w.callFunction("device lock json store", `sleep() { echo "b 8 16" >"$root/dev/bosh/disk-1"; };`+waitOtherDisks)
			Expect(status).To(BeZero())
			Expect(output).To(Equal("waiting for disk disk-1 to be attached, a minute at most\n"))
		})

		It("has a dynamic one waited for, no longer than a minute", func() {
			w.write("var/vcap/data/dynamic_disks/disk-1", "")
			status, output := w.callFunction("device lock json store", `
				slept=0; sleep() { slept=$((slept + 1)); };`+waitOtherDisks+`; echo "$slept times 0.2 s"`)
			Expect(status).To(BeZero())
			Expect(output).To(Equal("waiting for disk disk-1 to be attached, a minute at most\ngoing on without disk disk-1\n300 times 0.2 s\n"))
		})

		It("waits for nothing that is there", func() {
			lockDisk1()
			w.write("var/vcap/data/dynamic_disks/disk-1", "")
			_, output := w.callFunction("device lock json store", "sleep() { exit 1; };"+waitOtherDisks)
			Expect(output).To(BeEmpty())
		})
	})

	It("that is a directory is mounted likewise", func() {
		Expect(os.Remove(w.path("dev/bosh/disk-1"))).To(Succeed())
		w.mkdir("dev/bosh/disk-1")
		w.addMount("dev/bosh/disk-1")
		lockDisk1()
		w.expectBoot()
		Expect(w.calls()).To(ContainElement(mountStore))
	})

	Describe("of a machine that is made again for each disk", func() {
		BeforeEach(func() { w.setState("mounts", "") })

		It("is part of the container, and needs no attachment to be fresh", func() {
			w.expectBoot()
			Expect(w.calls()).To(ContainElement(mountStore))
			Expect(w.calls()).NotTo(ContainElement(ContainSubstring("remount")))
			w.expectInitStarted()
		})

		It("is forgotten when it is no part of it any more", func() {
			Expect(os.Remove(w.path("dev/bosh/disk-1"))).To(Succeed())
			status, output := w.runVMStart()
			Expect(status).To(BeZero())
			Expect(output).To(ContainSubstring("disk disk-1 is none of this machine's any more: forgetting that it was mounted"))
			Expect(w.exists(record)).To(BeFalse())
			w.expectInitStarted()
		})
	})
})
