//go:build linux

package attach_test

import (
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/attach"
	"bosh-kubernetes-cpi/cpi/node/lock"
)

var _ = Describe("The attachment of a disk that is a volume of the VM Pod", func() {
	var f fixture
	BeforeEach(func() { f = newFixture() })

	prepare := func() { Expect(run(attach.Prepare, f.System(), disk)).To(Succeed()) }

	It("prepares a Block volume once, before the VM has it, and creates no node", func() {
		f.addBlockVolume()
		r := start(attach.Prepare, f.System(), disk)
		f.waitPublished(r)
		r.stop()
		Expect(r.wait()).To(Succeed())
		Expect(f.isLocked()).To(BeFalse())
		Expect(f.exists("/devices/.prepared")).To(BeTrue())
		Expect(f.exists(nodePath)).To(BeFalse())

		f.hold("/dev/volume") // by the VM, even if no process is visible
		prepare()
	})

	It("fails without changes if the disk is in use before the VM has it", func() {
		numbers := f.addBlockVolume()
		f.hold("/dev/volume")
		f.addMount(numbers)
		err := run(attach.Prepare, f.System(), disk)
		Expect(expectCode(err, "disk-in-use").Users).To(HaveLen(1))
		Expect(err).To(MatchError("cannot prepare disk disk-1 for VM bosh/agent-a: it is in use outside of the VM: " +
			"process 200 (postgres) has it mounted at /var/vcap/store"))
		Expect(f.exists("/devices/.prepared")).To(BeFalse())
	})

	It("prepares nothing in a directory", func() {
		prepare()
		Expect(f.exists("/devices/.prepared")).To(BeTrue())
		Expect(os.ReadDir(f.Path("volume"))).To(BeEmpty())
	})

	It("fails if the volume has an image file from a VM with hot-plugged disks", func() {
		f.Write(image, "")
		err := run(attach.Prepare, f.System(), disk)
		_ = expectCode(err, "volume-not-blank")
		Expect(err).To(MatchError("the volume of disk disk-1 has an image file, which VM bosh/agent-a with disk_strategy: recreate cannot " +
			"use; nothing was changed; attach the disk to a VM without disk_strategy: recreate"))
		Expect(f.exists("/devices/.prepared")).To(BeFalse())
	})

	It("accepts an image file of a job, in a disk that is known to be a directory", func() {
		f.Write(image, "")
		formatted := disk
		formatted.Formatted = true
		Expect(run(attach.Prepare, f.System(), formatted)).To(Succeed())
		Expect(f.exists("/devices/.prepared")).To(BeTrue())
	})

	It("reports no disk as prepared if a call fails", func() {
		f.Write(image, "")
		for n := 1; n <= 4; n++ { // marker, volume, attached, image
			for _, errno := range errnos {
				sys, _ := f.failNth(n, errno)
				Expect(run(attach.Prepare, sys, disk)).NotTo(Succeed())
				Expect(f.exists("/devices/.prepared")).To(BeFalse())
			}
		}
	})

	It("syncs the record that the disk is prepared, so that it outlives a power failure", func() {
		sys := f.failing(func(call, _ string) error {
			if call == "fsync" {
				return unix.EIO
			}
			return nil
		})
		_ = expectCode(run(attach.Prepare, sys, disk), "disk-attach-failed")
	})

	It("only holds the lock if it is idle", func() {
		r := start(attach.Idle, f.System(), disk)
		f.waitPublished(r)
		r.stop()
		Expect(r.wait()).To(Succeed())
		Expect(f.isLocked()).To(BeFalse())
	})

	It("fails without a lock", func() {
		f.Write(lockPath+".new/file", "")
		_ = expectCode(run(attach.Idle, f.System(), disk), "disk-lock-failed")
	})
})

var _ = Describe("Waiting for an attachment", func() {
	var f fixture
	BeforeEach(func() { f = newFixture() })

	It("ends when the attachment holds its lock", func() {
		checks := make(chan struct{}, 1000)
		waiting := start(attach.Wait, f.failing(func(call, _ string) error {
			if call == "open" {
				checks <- struct{}{}
			}
			return nil
		}), disk)
		Eventually(checks).Should(Receive())
		Eventually(checks).Should(Receive())
		Expect(waiting.done).NotTo(BeClosed())
		f.attach(f.System())
		Expect(waiting.wait()).To(Succeed())
	})

	It("continues if the lock cannot be read", func() {
		held, err := lock.Take(f.System(), lockPath)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(held.Release)
		sys, _ := f.failNth(1, unix.EIO)
		Expect(attach.Wait(GinkgoT().Context(), sys, disk)).To(Succeed())
		sys, _ = f.failNth(1, unix.EIO)
		Expect(run(attach.Wait, sys, disk)).To(MatchError(unix.EIO))
	})
})

var _ = Describe("The directory of a VM on the node", func() {
	const directories = "proc/1/root/run/bosh-kubernetes-cpi/bosh/"
	var f fixture
	BeforeEach(func() { f = newFixture() })

	// attachInOldDirectory creates a VM's directory that was last changed two hours ago, and runs an attachment of another VM.
	attachInOldDirectory := func(files, podLogs []string) {
		GinkgoHelper()
		f.Mkdir(directories + "agent-b")
		for _, file := range files {
			f.Write(directories+"agent-b/"+file, "")
		}
		for _, directory := range podLogs {
			f.Mkdir("proc/1/root/var/log/pods/" + directory)
		}
		changed := time.Now().Add(-2 * time.Hour)
		Expect(os.Chtimes(f.Path(directories+"agent-b"), changed, changed)).To(Succeed())
		Expect(run(attach.Idle, f.System(), disk)).To(Succeed())
	}

	It("is removed after the VM left the node", func() {
		attachInOldDirectory(nil, []string{"bosh_agent-a_1", "bosh_agent-b2_2"})
		Expect(f.exists(directories + "agent-b")).To(BeFalse())
	})

	It("is kept for an hour after its last change", func() {
		f.Mkdir(directories + "agent-c")
		attachInOldDirectory(nil, []string{"bosh_agent-a_1"})
		Expect(f.exists(directories + "agent-c")).To(BeTrue())
	})

	It("is not created", func() {
		f.Write(directories+"file", "")
		changed := time.Now().Add(-2 * time.Hour)
		Expect(os.Chtimes(f.Path(directories+"file"), changed, changed)).To(Succeed())
		attachInOldDirectory(nil, []string{"bosh_agent-a_1"})
		Expect(f.exists(directories + "file")).To(BeTrue())
	})

	DescribeTable("is kept", func(files, podLogs []string) {
		attachInOldDirectory(files, podLogs)
		Expect(f.exists(directories + "agent-b")).To(BeTrue())
	},
		Entry("while the Pod of the VM is on the node", nil, []string{"bosh_agent-a_1", "bosh_agent-b_2"}),
		Entry("if it has files", []string{"disk-2"}, []string{"bosh_agent-a_1"}),
		Entry("if the kubelet keeps the logs of Pods elsewhere", nil, []string{"other_agent-a_1"}),
		Entry("if the logs of Pods are unknown", nil, nil),
	)

	It("is kept if the logs of Pods cannot be read", func() {
		f.Mkdir(directories + "agent-b")
		sys := f.failing(func(call, path string) error {
			if call == "readdir" && path == "/proc/1/root/var/log/pods" {
				return unix.EIO
			}
			return nil
		})
		Expect(run(attach.Idle, sys, disk)).To(Succeed())
		Expect(f.exists(directories + "agent-b")).To(BeTrue())
	})
})
