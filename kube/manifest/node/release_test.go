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
	var w world
	BeforeEach(func() {
		w = newWorld()
		w.device("devices/disk-1", 8, 16, mib, "")
	})

	It("takes the node away in the moment in which the device is free", func() {
		Expect(w.run(node.Release(), attachment...)).To(BeZero())
		Expect(w.calls()).To(Equal([]string{"mknod /dev/bosh-disk b 8 16", "exclusively /dev/bosh-disk"}))
		Expect(w.exists("devices/disk-1")).To(BeFalse())
	})

	It("fails while the device is in use, and names the users", func() {
		w.know("busy/8:16", "")
		w.process(200, 1, "postgres", inMachineA, "92 1 8:16 / /var/vcap/store rw")
		status, said := w.run(node.Release(), attachment...)
		Expect(status).To(Equal(1))
		Expect(said).To(Equal("process 200 (postgres) has it mounted at /var/vcap/store\n"))
		Expect(w.exists("devices/disk-1")).To(BeTrue())
	})

	It("tries again while the device is in use for a moment", func() {
		w.know("busy/8:16", "")
		r := w.at(3, node.Release(), attachment, func(*running) { w.forget("busy/8:16") })
		<-r.ended
		Expect(r.err).NotTo(HaveOccurred())
		Expect(w.exists("devices/disk-1")).To(BeFalse())
	})

	It("has succeeded when an earlier one has taken the node away from an attachment that lives", func() {
		w = newWorld()
		w.device("dev/volume", 8, 16, 8*mib, "ext4 - 8388608\n")
		w.hold(attachment)
		Expect(w.run(node.Release(), attachment...)).To(BeZero())
		before := len(w.calls())
		Expect(w.run(node.Release(), attachment...)).To(BeZero())
		Expect(w.calls()).To(HaveLen(before))
	})

	It("tells nothing when there is no node, and no attachment that holds the disk", func() {
		Expect(os.Remove(w.path("devices/disk-1"))).To(Succeed())
		w.write("devices/.disk-1.lock", "")
		status, said := w.run(node.Release(), attachment...)
		Expect(status).To(Equal(node.Unheld))
		Expect(said).To(Equal("disk disk-1 is not held by its attachment\n"))
	})

	It("waits for the node that an attachment makes in this moment", func() {
		w = newWorld()
		w.device("dev/volume", 8, 16, 8*mib, "ext4 - 8388608\n")
		var release *running
		w.at(toMknod, node.Hold(), attachment, func(*running) {
			release = w.start(node.Release(), attachment...)
			Consistently(release.ended, "300ms").ShouldNot(BeClosed())
		})
		Expect(release.wait()).To(BeZero())
		Expect(w.exists("devices/disk-1")).To(BeFalse())
	})

	It("frees the loop device of an attachment that does not live, and leaves it to one that does", func() {
		w = newWorld()
		w.write("dev/loop-control", "c 10 237\n")
		r := w.hold(attachment)
		Expect(w.run(node.Release(), attachment...)).To(BeZero())
		Expect(w.loops()).To(HaveLen(1))

		r.die()
		w.device("devices/disk-1", 7, 0, 0, "")
		Expect(w.run(node.Release(), attachment...)).To(BeZero())
		Expect(w.loops()).To(BeEmpty())
	})
})

var _ = Describe("An attachment for a machine that has the claim itself", func() {
	var w world
	BeforeEach(func() { w = newWorld() })

	prepared := func(env []string) *running {
		GinkgoHelper()
		r := w.start(node.Prepare(), env...)
		r.until(w.holds)
		return r
	}

	It("prepares the disk once, before the machine has it, and makes no node", func() {
		w.device("dev/volume", 8, 16, 9*mib, "xfs of-the-source 8388608\n")
		r := prepared(asXFS)
		calls := w.calls()
		Expect(calls[:6]).To(Equal(append(append([]string{"exclusively /dev/volume", readSize}, readMarks(9)...), "blkid -p /dev/volume")))
		Expect(calls).To(ContainElements("xfs_admin -U 1 /dev/volume", "xfs_growfs /mnt/grow"))
		Expect(w.disk("8:16")).To(Equal("xfs 1 9437184"))
		Expect(w.exists("devices/disk-1")).To(BeFalse())
		r.die()

		w.know("busy/8:16", "") // by the machine, which may not show it
		r = prepared(asXFS)
		Expect(w.calls()).To(Equal(calls))
		r.tell(syscall.SIGTERM)
		Expect(r.wait()).To(BeZero(), "it does not wait until the device is free")
	})

	It("fails, and touches nothing, when the disk is in use before the machine has it", func() {
		w.device("dev/volume", 8, 16, 9*mib, "ext4 - 8388608\n")
		w.know("busy/8:16", "")
		status, said := w.run(node.Prepare(), attachment...)
		Expect(status).To(Equal(1))
		Expect(said).To(ContainSubstring("disk disk-1 is still in use outside of VM bosh/agent-a"))
		Expect(w.exists("devices/.prepared")).To(BeFalse())
	})

	It("fails, and begins anew, when the preparation was cut short", func() {
		w.device("dev/volume", 8, 16, 8*mib, "")
		w.know("exit/mkfs.ext4", "1")
		status, _ := w.run(node.Prepare(), attachment...)
		Expect(status).To(Equal(1))
		w.forget("exit/mkfs.ext4")
		prepared(attachment)
		Expect(w.disk("8:16")).To(Equal("ext4 - 8388608"))
	})

	It("does not begin again after a power cut, for which it has synced that it is done", func() {
		w.device("dev/volume", 8, 16, 8*mib, "ext4 - 8388608\n")
		prepared(attachment)
		calls := w.calls()
		Expect(calls[len(calls)-1]).To(Equal("sync /devices/.prepared"))
	})

	It("has nothing to prepare in a directory", func() {
		prepared(attachment)
		Expect(w.calls()).To(HaveExactElements("sync /devices/.prepared"))
	})

	DescribeTable("ends whichever way its container is told", func(command []string, signal syscall.Signal) {
		r := w.start(command, attachment...)
		r.until(w.holds)
		r.tell(signal)
		Expect(r.wait()).To(BeZero(), strconv.Itoa(int(signal)))
		Expect(w.holds()).To(BeFalse())
	},
		Entry("when it keeps the disk", node.Keep(), syscall.SIGTERM),
		Entry("when it keeps the disk, made for systemd", node.Keep(), rtminPlus3),
		Entry("when it has prepared the disk, made for systemd", node.Prepare(), rtminPlus3),
	)
})
