package node_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node"
)

// rtminPlus3 is glibc's SIGRTMIN+3, which stops containers with systemd.
const rtminPlus3 = syscall.Signal(34 + 3)

var _ = Describe("Stopping an attachment", func() {
	cleanupCalls := []string{"open exclusively /dev/loop0", "losetup --detach /dev/loop0"}

	var root fakeRoot
	BeforeEach(func() {
		root = newFakeRoot()
		root.write("dev/loop-control", "c 10 237\n")
	})

	DescribeTable("removes node, lock and loop device on each signal", func(signal syscall.Signal) {
		r := root.startAttachment(attachment)
		callsBefore := len(root.calls())
		r.signal(signal)
		Expect(r.wait()).To(BeZero(), r.out.String())
		Expect(root.calls()[callsBefore:]).To(Equal(cleanupCalls))
		Expect(os.ReadDir(root.path("devices"))).To(BeEmpty())
		Expect(root.loops()).To(BeEmpty())
	},
		Entry("SIGTERM", syscall.SIGTERM),
		Entry("SIGINT", syscall.SIGINT),
		Entry("SIGQUIT", syscall.SIGQUIT),
		Entry("SIGRTMIN+3", rtminPlus3),
	)

	// Because publishing always finishes, no step needs to be undone.
	It("first finishes publishing the disk, no matter when the signal arrives", func() {
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
			Expect(interrupted.calls()).To(Equal(slices.Concat(steps, cleanupCalls)), "at %s", steps[step])
			Expect(os.ReadDir(interrupted.path("devices"))).To(BeEmpty(), "at %s", steps[step])
		}
	})

	// Bash 5.2 crashes in a subshell of a trap when an interrupted `read -t` times out, after at most a second.
	It("frees the loop device, no matter how slow the node is", func() {
		r := root.startAttachment(attachment)
		callsBefore := len(root.calls())
		root.setState("pause-at", strconv.Itoa(callsBefore+1))
		r.signal(syscall.SIGTERM)
		r.resumeAfter(func(r *startedProgram) { Consistently(r.exited, "1200ms").ShouldNot(BeClosed()) })
		Expect(r.wait()).To(BeZero(), r.out.String())
		Expect(root.calls()[callsBefore:]).To(Equal(cleanupCalls))
		Expect(root.loops()).To(BeEmpty())
	})

	It("waits until the device is free, and logs once which processes use it", func() {
		root.addProcess(200, 100, "postgres", "100 1 7:0 / /var/vcap/store rw", inVMA)
		r := root.startAttachment(attachment)
		root.setState("busy/7:0", "")
		r.signal(syscall.SIGTERM)
		r.waitUntil(func() bool { return count(root.calls(), "open exclusively /dev/loop0") > 8 })
		Expect(r.out.String()).To(Equal("waiting until disk disk-1 is free: process 200 (postgres) has it mounted at /var/vcap/store\n"))
		Expect(root.exists("devices/disk-1")).To(BeTrue())
		Expect(root.isLocked()).To(BeTrue())
		root.clearState("busy/7:0")
		Expect(r.wait()).To(BeZero())
		Expect(root.loops()).To(BeEmpty())
		Expect(os.ReadDir(root.path("devices"))).To(BeEmpty())
	})

	It("waits while a process of the VM has the device open without a mount", func() {
		root = newFakeRoot()
		major, minor := root.filesystemNumber()
		root.addDevice("dev/volume", major, minor, 8*mib, "ext4 - 8388608\n")
		r := root.startAttachment(attachment)
		root.addProcess(200, 100, "dd", inVMA)
		Expect(os.Symlink(root.path("devices"), root.path("proc/200/cwd"))).To(Succeed())
		r.signal(syscall.SIGTERM)
		r.waitUntil(func() bool {
			return strings.Contains(r.out.String(), "waiting until disk disk-1 is free: process 200 (dd) uses ")
		})
		Expect(root.exists("devices/disk-1")).To(BeTrue())
		root.remove("proc/200")
		Expect(r.wait()).To(BeZero())
	})

	It("does not wait if a release removed the node", func() {
		r := root.startAttachment(attachment)
		Expect(root.run(node.ExclusivityCheck(), attachment...)).To(BeZero())
		Expect(root.exists("devices/disk-1")).To(BeFalse())
		r.signal(syscall.SIGTERM)
		Expect(r.wait()).To(BeZero())
		Expect(root.loops()).To(BeEmpty())
	})
})

var _ = Describe("The directory of a VM on the node", func() {
	const directories = "proc/1/root/run/bosh-kubernetes-cpi/bosh/"
	var root fakeRoot
	BeforeEach(func() {
		root = newFakeRoot()
		root.addDevice("dev/volume", 8, 16, 8*mib, "ext4 - 8388608\n")
	})

	// attachInOldDirectory creates a VM's directory that was last changed two hours ago, and runs an attachment of another VM.
	attachInOldDirectory := func(files, podLogs []string) {
		GinkgoHelper()
		root.mkdir(directories + "agent-b")
		for _, file := range files {
			root.write(directories+"agent-b/"+file, "")
		}
		for _, directory := range podLogs {
			root.mkdir("proc/1/root/var/log/pods/" + directory)
		}
		changed := time.Now().Add(-2 * time.Hour)
		Expect(os.Chtimes(root.path(directories+"agent-b"), changed, changed)).To(Succeed())
		r := root.startAttachment(attachment)
		r.signal(syscall.SIGTERM)
		Expect(r.wait()).To(BeZero(), r.out.String())
		Expect(r.out.String()).To(BeEmpty())
	}

	It("is removed after the VM left the node", func() {
		attachInOldDirectory(nil, []string{"bosh_agent-a_1", "bosh_agent-b2_2"})
		Expect(root.exists(directories + "agent-b")).To(BeFalse())
	})

	It("is kept for an hour after its last change", func() {
		root.mkdir(directories + "agent-c")
		attachInOldDirectory(nil, []string{"bosh_agent-a_1"})
		Expect(root.exists(directories + "agent-c")).To(BeTrue())
	})

	DescribeTable("is kept", func(files, podLogs []string) {
		attachInOldDirectory(files, podLogs)
		Expect(root.exists(directories + "agent-b")).To(BeTrue())
	},
		Entry("while the Pod of the VM is on the node", nil, []string{"bosh_agent-a_1", "bosh_agent-b_2"}),
		Entry("if it has files", []string{"disk-2"}, []string{"bosh_agent-a_1"}),
		Entry("if the kubelet keeps the logs of Pods elsewhere", nil, []string{"other_agent-a_1"}),
		Entry("if the logs of Pods are unknown", nil, nil),
	)
})

// callsUntilMknod is the number of calls until the node of a formatted disk is created.
const callsUntilMknod = 11

var _ = Describe("The lock of an attachment", func() {
	var root fakeRoot
	BeforeEach(func() {
		root = newFakeRoot()
		root.addDevice("dev/volume", 8, 16, 8*mib, "ext4 - 8388608\n")
	})

	It("of an earlier attachment is removed first", func() {
		root.write("devices/.disk-1.lock", "")
		root.startPausedAt(1, node.Attach(), attachment, func(*startedProgram) { Expect(root.exists("devices/.disk-1.lock")).To(BeFalse()) })
	})

	It("is not held before the device is published", func() {
		root.startPausedAt(callsUntilMknod, node.Attach(), attachment, func(*startedProgram) {
			Expect(root.isLocked()).To(BeFalse())
		})
	})

	It("replaces a link that the VM created at its path, without changing the target of the link", func() {
		root.write("etc/passwd", "root")
		r := root.startPausedAt(callsUntilMknod, node.Attach(), attachment, func(*startedProgram) {
			Expect(os.Symlink(root.path("etc/passwd"), root.path("devices/.disk-1.lock"))).To(Succeed())
		})
		r.waitUntil(root.isLocked)
		Expect(root.read("etc/passwd")).To(Equal("root"))
		lock, err := os.Lstat(root.path("devices/.disk-1.lock"))
		Expect(err).NotTo(HaveOccurred())
		Expect(lock.Mode()).To(Equal(os.FileMode(0o600)))
	})

	It("is not held if its path is a link, and no file is created at the target of the link", func() {
		Expect(os.Symlink(root.path("etc/nologin"), root.path("devices/.disk-1.lock"))).To(Succeed())
		status, _ := root.callFunction("lock", `lock_held "$root/devices/.disk-1.lock"`)
		Expect(status).To(Equal(1))
		Expect(root.exists("etc/nologin")).To(BeFalse())
	})

	It("is held by one of the last processes that the kernel kills when the node's memory is used up", func() {
		root.write("proc/self/oom_score_adj", "999\n")
		root.startAttachment(attachment)
		Expect(root.read("proc/self/oom_score_adj")).To(Equal("-997\n"))
	})

	It("is also held if the container is not allowed to lower its OOM score", func() {
		root.mkdir("proc/self/oom_score_adj")
		r := root.startAttachment(attachment)
		Expect(r.out.String()).To(BeEmpty())
	})

	It("is awaited by wait-attached", func() {
		waiting := root.start(node.WaitAttached(), attachment...)
		r := root.startPausedAt(callsUntilMknod, node.Attach(), attachment, func(*startedProgram) {
			Consistently(waiting.exited, "100ms").ShouldNot(BeClosed())
		})
		Expect(waiting.wait()).To(BeZero())
		Expect(root.read("devices/disk-1")).To(Equal("b 8 16\n"))
		r.kill()
		Expect(root.isLocked()).To(BeFalse(), "the kernel releases it")
	})
})

func count(calls []string, call string) (n int) {
	for _, recorded := range calls {
		if recorded == call {
			n++
		}
	}
	return n
}
