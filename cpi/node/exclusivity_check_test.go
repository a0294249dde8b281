package node_test

import (
	"os"
	"strconv"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node"
)

var _ = Describe("exclusivity-check.sh", func() {
	var root fakeRoot
	BeforeEach(func() {
		root = newFakeRoot()
		root.addDevice("devices/disk-1", 8, 16, mib, "")
	})

	It("removes the node while it has the device open", func() {
		Expect(root.run(node.ExclusivityCheck(), attachment...)).To(BeZero())
		Expect(root.calls()).To(Equal([]string{"mknod /dev/bosh-disk b 8 16", "open exclusively /dev/bosh-disk"}))
		Expect(root.exists("devices/disk-1")).To(BeFalse())
	})

	It("fails while the device is in use, and reports the processes", func() {
		root.setState("busy/8:16", "")
		root.addProcess(200, 1, "postgres", inVMA, "92 1 8:16 / /var/vcap/store rw")
		status, output := root.run(node.ExclusivityCheck(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(Equal("process 200 (postgres) has it mounted at /var/vcap/store\n"))
		Expect(root.exists("devices/disk-1")).To(BeTrue())
	})

	Describe("with a process that has the device open without a mount", func() {
		BeforeEach(func() {
			major, minor := root.filesystemNumber()
			root.addDevice("devices/disk-1", major, minor, mib, "")
		})

		It("fails if the process belongs to the VM", func() {
			root.addProcess(200, 1, "dd", inVMA)
			Expect(os.Symlink(root.path("devices"), root.path("proc/200/cwd"))).To(Succeed())
			status, output := root.run(node.ExclusivityCheck(), attachment...)
			Expect(status).To(Equal(1))
			Expect(output).To(HavePrefix("process 200 (dd) uses "))
			Expect(root.exists("devices/disk-1")).To(BeTrue())
		})

		It("ignores a process outside of the VM, such as udev", func() {
			root.addProcess(200, 1, "udevd")
			Expect(os.Symlink(root.path("devices"), root.path("proc/200/cwd"))).To(Succeed())
			Expect(root.run(node.ExclusivityCheck(), attachment...)).To(BeZero())
			Expect(root.exists("devices/disk-1")).To(BeFalse())
		})
	})

	It("retries if the device is in use for a moment", func() {
		root.setState("busy/8:16", "")
		r := root.startPausedAt(3, node.ExclusivityCheck(), attachment, func(*startedProgram) { root.clearState("busy/8:16") })
		<-r.exited
		Expect(r.err).NotTo(HaveOccurred())
		Expect(root.exists("devices/disk-1")).To(BeFalse())
	})

	It("succeeds if an earlier release removed the node of a running attachment", func() {
		root = newFakeRoot()
		root.addDevice("dev/volume", 8, 16, 8*mib, "ext4 - 8388608\n")
		root.startAttachment(attachment)
		Expect(root.run(node.ExclusivityCheck(), attachment...)).To(BeZero())
		callsBefore := len(root.calls())
		Expect(root.run(node.ExclusivityCheck(), attachment...)).To(BeZero())
		Expect(root.calls()).To(HaveLen(callsBefore))
	})

	It("exits with ExitNotPublished if there is no node and no attachment holds the lock", func() {
		Expect(os.Remove(root.path("devices/disk-1"))).To(Succeed())
		root.write("devices/.disk-1.lock", "")
		status, output := root.run(node.ExclusivityCheck(), attachment...)
		Expect(status).To(Equal(node.ExitNotPublished))
		Expect(output).To(Equal("the attachment of disk disk-1 has not published it yet [disk-not-published]\n"))
	})

	It("waits for the node that an attachment is about to create", func() {
		root = newFakeRoot()
		root.addDevice("dev/volume", 8, 16, 8*mib, "ext4 - 8388608\n")
		var release *startedProgram
		root.startPausedAt(callsUntilMknod, node.Attach(), attachment, func(*startedProgram) {
			release = root.start(node.ExclusivityCheck(), attachment...)
			Consistently(release.exited, "300ms").ShouldNot(BeClosed())
		})
		Expect(release.wait()).To(BeZero())
		Expect(root.exists("devices/disk-1")).To(BeFalse())
	})

	It("frees the loop device if the attachment, which would free it, is not running", func() {
		root = newFakeRoot()
		root.write("dev/loop-control", "c 10 237\n")
		r := root.startAttachment(attachment)
		Expect(root.run(node.ExclusivityCheck(), attachment...)).To(BeZero())
		Expect(root.loops()).To(HaveLen(1))

		r.kill()
		root.addDevice("devices/disk-1", 7, 0, 0, "")
		Expect(root.run(node.ExclusivityCheck(), attachment...)).To(BeZero())
		Expect(root.loops()).To(BeEmpty())
	})
})

var _ = Describe("The attachment of a disk that is a volume of the VM Pod", func() {
	var root fakeRoot
	BeforeEach(func() { root = newFakeRoot() })

	startPrepared := func(env []string) *startedProgram {
		GinkgoHelper()
		r := root.start(node.PrepareVolume(), env...)
		r.waitUntil(root.isLocked)
		return r
	}

	It("prepares the disk once, before the VM has it, and creates no node", func() {
		root.addDevice("dev/volume", 8, 16, 9*mib, "xfs source 8388608\n")
		r := startPrepared(attachmentXFS)
		calls := root.calls()
		Expect(calls[:6]).To(Equal(append(append([]string{"open exclusively /dev/volume", readSize}, readMarks(9)...), "blkid -p /dev/volume")))
		Expect(calls).To(ContainElements("xfs_admin -U 1 /dev/volume", "xfs_growfs /mnt/grow"))
		Expect(root.readFilesystem("8:16")).To(Equal("xfs 1 9437184"))
		Expect(root.exists("devices/disk-1")).To(BeFalse())
		r.kill()

		root.setState("busy/8:16", "") // by the VM, even if no process is visible
		r = startPrepared(attachmentXFS)
		Expect(root.calls()).To(Equal(calls))
		r.signal(syscall.SIGTERM)
		Expect(r.wait()).To(BeZero(), "without waiting until the device is free")
	})

	It("fails without changes if the disk is in use before the VM has it", func() {
		root.addDevice("dev/volume", 8, 16, 9*mib, "ext4 - 8388608\n")
		root.setState("busy/8:16", "")
		status, output := root.run(node.PrepareVolume(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("cannot prepare disk disk-1 for VM bosh/agent-a: it is in use outside of the VM: "))
		Expect(root.exists("devices/.prepared")).To(BeFalse())
	})

	DescribeTable("with an image file from a VM with hot-plugged disks", func(env []string, prepared bool) {
		root.write("volume/disk.img", "")
		if prepared {
			startPrepared(env)
			return
		}
		status, output := root.run(node.PrepareVolume(), env...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("the volume of disk disk-1 has an image file, which VM bosh/agent-a with disk_strategy: recreate " +
			"cannot use; nothing was changed; attach the disk to a VM without disk_strategy: recreate [volume-not-blank]"))
		Expect(root.exists("devices/.prepared")).To(BeFalse())
	},
		Entry("fails", attachment, false),
		Entry("is prepared if the disk is known to be a directory: the file is of a job", attachmentFormatted, true),
	)

	It("starts over after a failure", func() {
		root.addDevice("dev/volume", 8, 16, 8*mib, "")
		root.setState("exit/mkfs.ext4", "1")
		status, _ := root.run(node.PrepareVolume(), attachment...)
		Expect(status).To(Equal(1))
		root.clearState("exit/mkfs.ext4")
		startPrepared(attachment)
		Expect(root.readFilesystem("8:16")).To(Equal("ext4 - 8388608"))
	})

	It("syncs the record that the disk is prepared, so that it outlives a power failure", func() {
		root.addDevice("dev/volume", 8, 16, 8*mib, "ext4 - 8388608\n")
		startPrepared(attachment)
		calls := root.calls()
		Expect(calls[len(calls)-1]).To(Equal("sync /devices/.prepared"))
	})

	It("prepares nothing in a directory", func() {
		startPrepared(attachment)
		Expect(root.calls()).To(HaveExactElements("sync /devices/.prepared"))
	})

	DescribeTable("exits on each signal", func(command []string, signal syscall.Signal) {
		r := root.start(command, attachment...)
		r.waitUntil(root.isLocked)
		r.signal(signal)
		Expect(r.wait()).To(BeZero(), strconv.Itoa(int(signal)))
		Expect(root.isLocked()).To(BeFalse())
	},
		Entry("idle, SIGTERM", node.Idle(), syscall.SIGTERM),
		Entry("idle, SIGRTMIN+3", node.Idle(), rtminPlus3),
		Entry("prepare, SIGRTMIN+3", node.PrepareVolume(), rtminPlus3),
	)
})
