package node_test

import (
	"os"
	"strconv"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

var _ = Describe("A release", func() {
	var w fakeRoot
	BeforeEach(func() {
		w = newFakeRoot()
		w.addDevice("devices/disk-1", 8, 16, mib, "")
	})

	It("takes the node away in the moment in which the device is free", func() {
		Expect(w.run(node.Release(), attachment...)).To(BeZero())
		Expect(w.calls()).To(Equal([]string{"mknod /dev/bosh-disk b 8 16", "exclusively /dev/bosh-disk"}))
		Expect(w.exists("devices/disk-1")).To(BeFalse())
	})

	It("fails while the device is in use, and names the users", func() {
		w.setState("busy/8:16", "")
		w.addProcess(200, 1, "postgres", inVMA, "92 1 8:16 / /var/vcap/store rw")
		status, output := w.run(node.Release(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(Equal("process 200 (postgres) has it mounted at /var/vcap/store\n"))
		Expect(w.exists("devices/disk-1")).To(BeTrue())
	})

	It("tries again while the device is in use for a moment", func() {
		w.setState("busy/8:16", "")
		r := w.startPausedAt(3, node.Release(), attachment, func(*startedProgram) { w.clearState("busy/8:16") })
		<-r.exited
		Expect(r.err).NotTo(HaveOccurred())
		Expect(w.exists("devices/disk-1")).To(BeFalse())
	})

	It("has succeeded when an earlier one has taken the node away from an attachment that lives", func() {
		w = newFakeRoot()
		w.addDevice("dev/volume", 8, 16, 8*mib, "ext4 - 8388608\n")
		w.startAttachment(attachment)
		Expect(w.run(node.Release(), attachment...)).To(BeZero())
		callsBefore := len(w.calls())
		Expect(w.run(node.Release(), attachment...)).To(BeZero())
		Expect(w.calls()).To(HaveLen(callsBefore))
	})

	It("tells nothing when there is no node, and no attachment that holds the disk", func() {
		Expect(os.Remove(w.path("devices/disk-1"))).To(Succeed())
		w.write("devices/.disk-1.lock", "")
		status, output := w.run(node.Release(), attachment...)
		Expect(status).To(Equal(node.ExitNotPublished))
		Expect(output).To(Equal("disk disk-1 is not held by its attachment\n"))
	})

	It("waits for the node that an attachment makes in this moment", func() {
		w = newFakeRoot()
		w.addDevice("dev/volume", 8, 16, 8*mib, "ext4 - 8388608\n")
		var release *startedProgram
		w.startPausedAt(callsUntilMknod, node.Attach(), attachment, func(*startedProgram) {
			release = w.start(node.Release(), attachment...)
			Consistently(release.exited, "300ms").ShouldNot(BeClosed())
		})
		Expect(release.wait()).To(BeZero())
		Expect(w.exists("devices/disk-1")).To(BeFalse())
	})

	It("frees the loop device of an attachment that does not live, and leaves it to one that does", func() {
		w = newFakeRoot()
		w.write("dev/loop-control", "c 10 237\n")
		r := w.startAttachment(attachment)
		Expect(w.run(node.Release(), attachment...)).To(BeZero())
		Expect(w.loops()).To(HaveLen(1))

		r.kill()
		w.addDevice("devices/disk-1", 7, 0, 0, "")
		Expect(w.run(node.Release(), attachment...)).To(BeZero())
		Expect(w.loops()).To(BeEmpty())
	})
})

var _ = Describe("An attachment for a machine that has the claim itself", func() {
	var w fakeRoot
	BeforeEach(func() { w = newFakeRoot() })

	startPrepared := func(env []string) *startedProgram {
		GinkgoHelper()
		r := w.start(node.PrepareVolume(), env...)
		r.waitUntil(w.isLocked)
		return r
	}

	It("prepares the disk once, before the machine has it, and makes no node", func() {
		w.addDevice("dev/volume", 8, 16, 9*mib, "xfs of-the-source 8388608\n")
		r := startPrepared(attachmentXFS)
		calls := w.calls()
		Expect(calls[:6]).To(Equal(append(append([]string{"exclusively /dev/volume", readSize}, readMarks(9)...), "blkid -p /dev/volume")))
		Expect(calls).To(ContainElements("xfs_admin -U 1 /dev/volume", "xfs_growfs /mnt/grow"))
		Expect(w.readFilesystem("8:16")).To(Equal("xfs 1 9437184"))
		Expect(w.exists("devices/disk-1")).To(BeFalse())
		r.kill()

		w.setState("busy/8:16", "") // by the machine, which may not show it
		r = startPrepared(attachmentXFS)
		Expect(w.calls()).To(Equal(calls))
		r.signal(syscall.SIGTERM)
		Expect(r.wait()).To(BeZero(), "it does not wait until the device is free")
	})

	It("fails, and touches nothing, when the disk is in use before the machine has it", func() {
		w.addDevice("dev/volume", 8, 16, 9*mib, "ext4 - 8388608\n")
		w.setState("busy/8:16", "")
		status, output := w.run(node.PrepareVolume(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("disk disk-1 is still in use outside of VM bosh/agent-a"))
		Expect(w.exists("devices/.prepared")).To(BeFalse())
	})

	It("fails, and begins anew, when the preparation was cut short", func() {
		w.addDevice("dev/volume", 8, 16, 8*mib, "")
		w.setState("exit/mkfs.ext4", "1")
		status, _ := w.run(node.PrepareVolume(), attachment...)
		Expect(status).To(Equal(1))
		w.clearState("exit/mkfs.ext4")
		startPrepared(attachment)
		Expect(w.readFilesystem("8:16")).To(Equal("ext4 - 8388608"))
	})

	It("does not begin again after a power cut, for which it has synced that it is done", func() {
		w.addDevice("dev/volume", 8, 16, 8*mib, "ext4 - 8388608\n")
		startPrepared(attachment)
		calls := w.calls()
		Expect(calls[len(calls)-1]).To(Equal("sync /devices/.prepared"))
	})

	It("has nothing to prepare in a directory", func() {
		startPrepared(attachment)
		Expect(w.calls()).To(HaveExactElements("sync /devices/.prepared"))
	})

	DescribeTable("ends whichever way its container is told", func(command []string, signal syscall.Signal) {
		r := w.start(command, attachment...)
		r.waitUntil(w.isLocked)
		r.signal(signal)
		Expect(r.wait()).To(BeZero(), strconv.Itoa(int(signal)))
		Expect(w.isLocked()).To(BeFalse())
	},
		Entry("when it keeps the disk", node.Idle(), syscall.SIGTERM),
		Entry("when it keeps the disk, made for systemd", node.Idle(), rtminPlus3),
		Entry("when it has prepared the disk, made for systemd", node.PrepareVolume(), rtminPlus3),
	)
})
