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

	var w fakeRoot
	BeforeEach(func() {
		w = newFakeRoot()
		w.write("dev/loop-control", "c 10 237\n")
	})

	DescribeTable("takes node, lock and loop device away, whichever way the container is told of it", func(signal syscall.Signal) {
		r := w.startAttachment(attachment)
		callsBefore := len(w.calls())
		r.signal(signal)
		Expect(r.wait()).To(BeZero(), r.out.String())
		Expect(w.calls()[callsBefore:]).To(Equal(leaving))
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
		reference := newFakeRoot()
		reference.write("dev/loop-control", "c 10 237\n")
		reference.startAttachment(attachment)
		steps := reference.calls()
		Expect(len(steps)).To(BeNumerically(">", 10))
		signals := []syscall.Signal{syscall.SIGTERM, rtminPlus3, syscall.SIGINT, syscall.SIGQUIT}
		for step := range steps {
			interrupted := newFakeRoot()
			interrupted.write("dev/loop-control", "c 10 237\n")
			r := interrupted.startPausedAt(step+1, node.Attach(), attachment, func(r *startedProgram) { r.signal(signals[step%len(signals)]) })
			Expect(r.wait()).To(BeZero(), "at %s: %s", steps[step], r.out)
			Expect(interrupted.calls()).To(Equal(slices.Concat(steps, leaving)), "at %s", steps[step])
			Expect(os.ReadDir(interrupted.path("devices"))).To(BeEmpty(), "at %s", steps[step])
		}
	})

	It("waits until the device is free, and says once who uses it", func() {
		w.addProcess(200, 100, "machine's", "100 1 7:0 / /var/vcap/store rw", inVMA)
		r := w.startAttachment(attachment)
		w.setState("busy/7:0", "")
		r.signal(syscall.SIGTERM)
		r.waitUntil(func() bool { return count(w.calls(), "exclusively /dev/loop0") > 8 })
		Expect(r.out.String()).To(Equal("disk disk-1 stays until it is free: process 200 (machine's) has it mounted at /var/vcap/store\n"))
		Expect(w.exists("devices/disk-1")).To(BeTrue())
		Expect(w.isLocked()).To(BeTrue())
		w.clearState("busy/7:0")
		Expect(r.wait()).To(BeZero())
		Expect(w.loops()).To(BeEmpty())
		Expect(os.ReadDir(w.path("devices"))).To(BeEmpty())
	})

	It("comes at once when its node was taken away by a release", func() {
		r := w.startAttachment(attachment)
		Expect(w.run(node.Release(), attachment...)).To(BeZero())
		Expect(w.exists("devices/disk-1")).To(BeFalse())
		r.signal(syscall.SIGTERM)
		Expect(r.wait()).To(BeZero())
		Expect(w.loops()).To(BeEmpty())
	})
})

// callsUntilMknod is how many calls it takes to publish a disk that has all that it needs.
const callsUntilMknod = 11

var _ = Describe("An attachment's lock", func() {
	var w fakeRoot
	BeforeEach(func() {
		w = newFakeRoot()
		w.addDevice("dev/volume", 8, 16, 8*mib, "ext4 - 8388608\n")
	})

	It("that a former attachment has left is gone before anything is done", func() {
		w.write("devices/.disk-1.lock", "")
		w.startPausedAt(1, node.Attach(), attachment, func(*startedProgram) { Expect(w.exists("devices/.disk-1.lock")).To(BeFalse()) })
	})

	It("is not held before the device is published", func() {
		w.startPausedAt(callsUntilMknod, node.Attach(), attachment, func(*startedProgram) {
			Expect(w.isLocked()).To(BeFalse())
		})
	})

	It("replaces a link that the VM has put in its place, and leaves what that points to as it is", func() {
		w.write("etc/passwd", "root")
		r := w.startPausedAt(callsUntilMknod, node.Attach(), attachment, func(*startedProgram) {
			Expect(os.Symlink(w.path("etc/passwd"), w.path("devices/.disk-1.lock"))).To(Succeed())
		})
		r.waitUntil(w.isLocked)
		Expect(w.read("etc/passwd")).To(Equal("root"))
		lock, err := os.Lstat(w.path("devices/.disk-1.lock"))
		Expect(err).NotTo(HaveOccurred())
		Expect(lock.Mode()).To(Equal(os.FileMode(0o600)))
	})

	It("that is a link counts as none, and makes no file where it points to", func() {
		Expect(os.Symlink(w.path("etc/nologin"), w.path("devices/.disk-1.lock"))).To(Succeed())
		status, _ := w.callFunction("lock", `held "$root/devices/.disk-1.lock"`)
		Expect(status).To(Equal(1))
		Expect(w.exists("etc/nologin")).To(BeFalse())
	})

	It("is held by one of the last programs that the kernel kills when the node's memory is used up", func() {
		w.write("proc/self/oom_score_adj", "999\n")
		w.startAttachment(attachment)
		Expect(w.read("proc/self/oom_score_adj")).To(Equal("-997\n"))
	})

	It("is held also where a container may not ask for that", func() {
		w.mkdir("proc/self/oom_score_adj")
		r := w.startAttachment(attachment)
		Expect(r.out.String()).To(BeEmpty())
	})

	It("is what others wait for", func() {
		waiting := w.start(node.WaitAttached(), attachment...)
		r := w.startPausedAt(callsUntilMknod, node.Attach(), attachment, func(*startedProgram) { Consistently(waiting.exited, "100ms").ShouldNot(BeClosed()) })
		Expect(waiting.wait()).To(BeZero())
		Expect(w.read("devices/disk-1")).To(Equal("b 8 16\n"))
		r.kill()
		Expect(w.isLocked()).To(BeFalse(), "the kernel drops it")
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
