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

	var w world
	BeforeEach(func() {
		w = stemcell()
		w.write(record, "disk-1")
		w.write(hints, `{"disk-1": {"ID": "disk-1"}}`)
		w.device("dev/bosh/disk-1", 8, 16, mib, "")
	})

	// attach has an attachment hold a disk: it locks a file beside the node for as long as it lives.
	attach := func(disk string) {
		GinkgoHelper()
		lock := w.path("dev/bosh/." + disk + ".lock")
		holder := exec.Command("flock", lock, "cat")
		in, err := holder.StdinPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(holder.Start()).To(Succeed())
		DeferCleanup(func() {
			_ = in.Close()
			_ = holder.Wait()
		})
		Eventually(func() error { return exec.Command("flock", "--nonblock", "--shared", lock, "true").Run() }).
			WithTimeout(patience).ShouldNot(Succeed())
	}
	attached := func() {
		GinkgoHelper()
		attach("disk-1")
	}
	// waits starts the machine, and returns when it has said that it waits for its disk.
	waits := func() *running {
		GinkgoHelper()
		r := w.start(node.MachineStart())
		r.until(func() bool {
			return strings.Contains(r.out.String(), "waiting for disk disk-1 to be attached before any job may start")
		})
		Expect(w.calls()).NotTo(ContainElement(HavePrefix("init")))
		return r
	}

	It("is not waited for by a machine that is told to end", func() {
		r := waits()
		r.tell(syscall.SIGTERM)
		Expect(r.wait()).To(Equal(1))
		Expect(r.out.String()).To(HaveSuffix("machine-start: told to end before the init program has started\n"))
	})

	It("is mounted before the init program starts", func() {
		attached()
		status, said := w.boot()
		Expect(status).To(BeZero())
		Expect(said).To(HaveSuffix("machine-start: disk disk-1 is mounted at /var/vcap/store\n"))
		calls := w.calls()
		Expect(calls[len(calls)-6:]).To(Equal([]string{"mount -o remount,bind,dev,rw /dev/bosh", mountStore, makeReserve, "unshare --cgroup true", becomes, "init in kubernetes"}))
	})

	It("is mounted with the options that the director gave", func() {
		attached()
		w.write("bosh/settings/mount-options", "noatime,commit=30")
		w.boots()
		Expect(w.calls()).To(ContainElement("mount /dev/bosh/disk-1 /var/vcap/store -o noatime,commit=30"))
	})

	It("is not there for a machine that has none", func() {
		Expect(os.Remove(w.path(record))).To(Succeed())
		w.write(hints, "{}")
		w.boots()
		w.isUp()
		Expect(w.calls()).NotTo(ContainElement(mountStore))
	})

	It("that was taken away is forgotten, and not waited for", func() {
		w.write(hints, `{"disk-10": {"ID": "disk-1"}}`)
		w.device("dev/bosh/disk-10", 8, 32, mib, "")
		attach("disk-10")
		status, said := w.boot()
		Expect(status).To(BeZero())
		Expect(said).To(ContainSubstring("disk disk-1 was taken from this machine: forgetting that it was mounted"))
		Expect(w.exists(record)).To(BeFalse())
		Expect(w.calls()).NotTo(ContainElement(mountStore))
		w.isUp()
	})

	DescribeTable("is mounted though the agent's file about disks tells nothing", func(write func()) {
		attached()
		write()
		w.boots()
		Expect(w.calls()).To(ContainElement(mountStore))
	},
		Entry("since it is gone", func() { Expect(os.Remove(w.path(hints))).To(Succeed()) }),
		Entry("since it was cut short", func() { w.write(hints, "") }),
	)

	It("in the middle of a migration to another is mounted by nobody, and no job starts", func() {
		attached()
		w.write(hints, `{"disk-1": {"ID": "disk-1"}, "disk-2": {"ID": "disk-2"}}`)
		status, said := w.boot()
		Expect(status).To(Equal(1))
		Expect(said).To(ContainSubstring("the machine ended in the middle of a migration between its disks; the VM has to be recreated"))
		Expect(w.calls()).NotTo(ContainElements(mountStore))
		Expect(w.calls()).NotTo(ContainElement(HavePrefix("init")))
		Expect(w.exists(record)).To(BeTrue())
	})

	It("is mounted though a power cut has left the agent's record of it empty", func() {
		attached()
		w.write(record, "")
		w.boots()
		Expect(w.calls()).To(ContainElement(mountStore))
		Expect(w.read(record)).To(Equal("disk-1"))
	})

	DescribeTable("is mounted by nobody when its record is empty, and no job starts,", func(hinted string) {
		attached()
		w.write(record, "")
		w.write(hints, hinted)
		status, said := w.boot()
		Expect(status).To(Equal(1))
		Expect(said).To(ContainSubstring("the agent's record of the disk that it has mounted is damaged, as after a power cut: recreate the VM"))
		Expect(w.calls()).NotTo(ContainElement(HavePrefix("init")))
	},
		Entry("and so is what the agent knows of disks", ""),
		Entry("and the agent knows several", `{"disk-1": {"ID": "disk-1"}, "disk-2": {"ID": "disk-2"}}`),
	)

	It("is not looked for when its record is empty and the agent knows none", func() {
		w.write(record, "")
		w.write(hints, "{}")
		w.boots()
		w.isUp()
		Expect(w.calls()).NotTo(ContainElement(mountStore))
	})

	DescribeTable("is waited for", func(missing func()) {
		missing()
		r := waits()
		Expect(w.calls()).NotTo(ContainElement(mountStore))
		w.write("dev/bosh/disk-1", "b 8 16\n")
		attached()
		Expect(r.wait()).To(BeZero())
		Expect(w.calls()).To(ContainElement(mountStore))
		w.isUp()
	},
		Entry("while its node is one that an earlier boot has left", func() {}),
		Entry("while its node is one whose attachment has died", func() { w.write("dev/bosh/.disk-1.lock", "") }),
		Entry("while it has no node", func() { Expect(os.Remove(w.path("dev/bosh/disk-1"))).To(Succeed()) }),
	)

	It("is tried again when it cannot be mounted, and says why", func() {
		attached()
		w.know("exit/mount", "32")
		w.know("mounts", w.path("dev/bosh")+" - -\n")
		w.write("bosh/machine/vcap/bosh/agent.json", "{}")
		status, said := w.call("device lock json store", `
			say() { echo "$*"; }
			sleep() { rm -f "$STAND_INS/exit/mount"; }
			given=$root/bosh/settings devices=$root/dev/bosh bosh=$root/var/vcap/bosh
			restore_store`)
		Expect(status).To(BeZero())
		Expect(said).To(Equal("waiting for disk disk-1 to be attached before any job may start: mount: as the test wants it\n" +
			"disk disk-1 is mounted at /var/vcap/store\n"))
	})

	Describe("beside others", func() {
		const boots = `
			say() { echo "$*"; }
			given=$root/bosh/settings devices=$root/dev/bosh bosh=$root/var/vcap/bosh
			await_others`
		BeforeEach(func() {
			w.know("mounts", w.path("dev/bosh")+" - -\n")
			w.write(hints, "{}")
		})

		It("has one of several waited for, until it is there", func() {
			w.write(hints, `{"disk-1": {"ID": "disk-1"}}`)
			attached()
			Expect(os.Remove(w.path("dev/bosh/disk-1"))).To(Succeed())
			status, said := w.call("device lock json store", `sleep() { echo "b 8 16" >"$root/dev/bosh/disk-1"; };`+boots)
			Expect(status).To(BeZero())
			Expect(said).To(Equal("waiting for disk disk-1 to be attached, a minute at most\n"))
		})

		It("has a dynamic one waited for, no longer than a minute", func() {
			w.write("var/vcap/data/dynamic_disks/disk-1", "")
			status, said := w.call("device lock json store", `
				slept=0; sleep() { slept=$((slept + 1)); };`+boots+`; echo "$slept times 0.2 s"`)
			Expect(status).To(BeZero())
			Expect(said).To(Equal("waiting for disk disk-1 to be attached, a minute at most\ngoing on without disk disk-1\n300 times 0.2 s\n"))
		})

		It("waits for nothing that is there", func() {
			attached()
			w.write("var/vcap/data/dynamic_disks/disk-1", "")
			_, said := w.call("device lock json store", "sleep() { exit 1; };"+boots)
			Expect(said).To(BeEmpty())
		})
	})

	It("that is a directory is mounted likewise", func() {
		Expect(os.Remove(w.path("dev/bosh/disk-1"))).To(Succeed())
		w.folder("dev/bosh/disk-1")
		w.mounted("dev/bosh/disk-1")
		attached()
		w.boots()
		Expect(w.calls()).To(ContainElement(mountStore))
	})

	Describe("of a machine that is made again for each disk", func() {
		BeforeEach(func() { w.know("mounts", "") })

		It("is part of the container, and needs no attachment to be fresh", func() {
			w.boots()
			Expect(w.calls()).To(ContainElement(mountStore))
			Expect(w.calls()).NotTo(ContainElement(ContainSubstring("remount")))
			w.isUp()
		})

		It("is forgotten when it is no part of it any more", func() {
			Expect(os.Remove(w.path("dev/bosh/disk-1"))).To(Succeed())
			status, said := w.boot()
			Expect(status).To(BeZero())
			Expect(said).To(ContainSubstring("disk disk-1 is none of this machine's any more: forgetting that it was mounted"))
			Expect(w.exists(record)).To(BeFalse())
			w.isUp()
		})
	})
})
