package node_test

import (
	"os"
	"slices"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

const rtminPlus3 = syscall.Signal(34 + 3) // glibc's SIGRTMIN+3: what images made for systemd are told to end with

var _ = Describe("An attachment's end", func() {
	// The node is removed by the first; the second looks whether the loop device is free, too.
	leaving := []string{"exclusively /dev/loop0", "exclusively /dev/loop0", "losetup --detach /dev/loop0"}

	var w world
	BeforeEach(func() {
		w = newWorld()
		w.write("dev/loop-control", "c 10 237\n")
	})

	DescribeTable("takes node, lock and loop device away, whichever way the container is told of it", func(signal syscall.Signal) {
		r := w.hold(attachment)
		before := len(w.calls())
		r.tell(signal)
		Expect(r.wait()).To(BeZero(), r.out.String())
		Expect(w.calls()[before:]).To(Equal(leaving))
		Expect(os.ReadDir(w.path("devices"))).To(BeEmpty())
		Expect(w.loops()).To(BeEmpty())
	},
		Entry("SIGTERM", syscall.SIGTERM),
		Entry("SIGINT", syscall.SIGINT),
		Entry("SIGQUIT", syscall.SIGQUIT),
		Entry("SIGRTMIN+3", rtminPlus3),
	)

	// What was begun is finished, so that no step has to know how to be undone.
	It("comes after what was begun is finished, at whatever step it is told", func() {
		undisturbed := newWorld()
		undisturbed.write("dev/loop-control", "c 10 237\n")
		undisturbed.hold(attachment)
		steps := undisturbed.calls()
		Expect(len(steps)).To(BeNumerically(">", 10))
		signals := []syscall.Signal{syscall.SIGTERM, rtminPlus3, syscall.SIGINT, syscall.SIGQUIT}
		for step := range steps {
			each := newWorld()
			each.write("dev/loop-control", "c 10 237\n")
			r := each.at(step+1, node.Hold(), attachment, func(r *running) { r.tell(signals[step%len(signals)]) })
			Expect(r.wait()).To(BeZero(), "at %s: %s", steps[step], r.out)
			Expect(each.calls()).To(Equal(slices.Concat(steps, leaving)), "at %s", steps[step])
			Expect(os.ReadDir(each.path("devices"))).To(BeEmpty(), "at %s", steps[step])
		}
	})

	It("waits until the device is free, and says once who uses it", func() {
		w.process(200, 100, "machine's", "100 1 7:0 / /var/vcap/store rw", inMachineA)
		r := w.hold(attachment)
		w.know("busy/7:0", "")
		r.tell(syscall.SIGTERM)
		r.until(func() bool { return count(w.calls(), "exclusively /dev/loop0") > 8 })
		Expect(r.out.String()).To(Equal("disk disk-1 stays until it is free: process 200 (machine's) has it mounted at /var/vcap/store\n"))
		Expect(w.exists("devices/disk-1")).To(BeTrue())
		Expect(w.holds()).To(BeTrue())
		w.forget("busy/7:0")
		Expect(r.wait()).To(BeZero())
		Expect(w.loops()).To(BeEmpty())
		Expect(os.ReadDir(w.path("devices"))).To(BeEmpty())
	})

	It("comes at once when its node was taken away by a release", func() {
		r := w.hold(attachment)
		Expect(w.run(node.Release(), attachment...)).To(BeZero())
		Expect(w.exists("devices/disk-1")).To(BeFalse())
		r.tell(syscall.SIGTERM)
		Expect(r.wait()).To(BeZero())
		Expect(w.loops()).To(BeEmpty())
	})
})

// toMknod is how many calls it takes to publish a disk that has all that it needs.
const toMknod = 11

var _ = Describe("An attachment's lock", func() {
	var w world
	BeforeEach(func() {
		w = newWorld()
		w.device("dev/volume", 8, 16, 8*mib, "ext4 - 8388608\n")
	})

	It("that a former attachment has left is gone before anything is done", func() {
		w.write("devices/.disk-1.lock", "")
		w.at(1, node.Hold(), attachment, func(*running) { Expect(w.exists("devices/.disk-1.lock")).To(BeFalse()) })
	})

	It("is not held before the device is published", func() {
		w.at(toMknod, node.Hold(), attachment, func(*running) {
			Expect(w.holds()).To(BeFalse())
		})
	})

	It("replaces a link that the VM has put in its place, and leaves what that points to as it is", func() {
		w.write("etc/passwd", "root")
		r := w.at(toMknod, node.Hold(), attachment, func(*running) {
			Expect(os.Symlink(w.path("etc/passwd"), w.path("devices/.disk-1.lock"))).To(Succeed())
		})
		r.until(w.holds)
		Expect(w.read("etc/passwd")).To(Equal("root"))
		lock, err := os.Lstat(w.path("devices/.disk-1.lock"))
		Expect(err).NotTo(HaveOccurred())
		Expect(lock.Mode()).To(Equal(os.FileMode(0o600)))
	})

	It("that is a link counts as none, and makes no file where it points to", func() {
		Expect(os.Symlink(w.path("etc/nologin"), w.path("devices/.disk-1.lock"))).To(Succeed())
		status, _ := w.call("lock", `held "$root/devices/.disk-1.lock"`)
		Expect(status).To(Equal(1))
		Expect(w.exists("etc/nologin")).To(BeFalse())
	})

	It("is held by one of the last programs that the kernel kills when the node's memory is used up", func() {
		w.write("proc/self/oom_score_adj", "999\n")
		w.hold(attachment)
		Expect(w.read("proc/self/oom_score_adj")).To(Equal("-997\n"))
	})

	It("is held also where a container may not ask for that", func() {
		w.folder("proc/self/oom_score_adj")
		r := w.hold(attachment)
		Expect(r.out.String()).To(BeEmpty())
	})

	It("is what others wait for", func() {
		waiting := w.start(node.Await(), attachment...)
		r := w.at(toMknod, node.Hold(), attachment, func(*running) { Consistently(waiting.ended, "100ms").ShouldNot(BeClosed()) })
		Expect(waiting.wait()).To(BeZero())
		Expect(w.read("devices/disk-1")).To(Equal("b 8 16\n"))
		r.die()
		Expect(w.holds()).To(BeFalse(), "the kernel drops it")
	})
})

func count(calls []string, call string) (n int) {
	for _, each := range calls {
		if each == call {
			n++
		}
	}
	return n
}
