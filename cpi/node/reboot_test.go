package node_test

import (
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node"
)

var _ = Describe("reboot.sh", func() {
	var root fakeRoot
	BeforeEach(func() { root = newFakeRoot() })

	env := []string{"VM=bosh/agent-a", "CONTAINER=c0ffee"}
	reboot := func(additionalEnv ...string) (int, string) {
		GinkgoHelper()
		return root.run(node.Reboot(), append(append([]string{"STOP_TIMEOUT=1", "REBOOT_TIMEOUT=1"}, env...), additionalEnv...)...)
	}

	It("terminates runit's services, then the jobs, then the init program, and no other processes", func() {
		init := root.startVMProcess("runsvdir", "1", "")
		supervisor := root.startVMProcess("runsv", "18", "TERM")
		service := root.startVMProcess("monit", "16", "TERM")
		service.setParent(supervisor)
		job := root.startVMProcess("job", "17", "TERM")
		logger := root.startVMProcess("svlogd", "19", "TERM")
		kernelThread := root.startVMProcess("kernel thread", "20", "TERM")
		root.write(kernelThread.file("cmdline"), "")
		root.shareNamespace(init, supervisor, service, job, logger, kernelThread)
		root.shareNamespace(root.startVMProcess("in a container of the VM", "21 1", "TERM"))
		root.startVMProcess("in another PID namespace", "22", "TERM")
		Expect(reboot()).To(BeZero())
		Expect(init.wasKilled()).To(BeTrue())
		Expect(root.signals()[0]).To(Equal("runsv TERM"))
		Expect(root.signals()[1:]).To(ConsistOf("monit TERM", "job TERM"))
	})

	It("runs no programs of the VM", func() {
		root.shareNamespace(root.startVMProcess("runsvdir", "1", ""), root.startVMProcess("runsv", "18", "TERM"))
		Expect(reboot()).To(BeZero())
		Expect(root.calls()).To(HaveExactElements(""))
	})

	It("terminates the jobs after the services, because services restart jobs", func() {
		init, supervisor := root.startVMProcess("runsvdir", "1", ""), root.startVMProcess("runsv", "18", "")
		service, job := root.startVMProcess("monit", "16", ""), root.startVMProcess("job", "17", "TERM")
		service.setParent(supervisor)
		root.shareNamespace(init, supervisor, service, job)
		r := root.start(node.Reboot(), append([]string{"STOP_TIMEOUT=300"}, env...)...)
		r.waitUntil(func() bool { return root.signals()[0] != "" })
		Consistently(root.signals, "300ms").Should(Equal([]string{"runsv TERM"}))
		root.remove(service.file(""))
		Expect(r.wait()).To(BeZero())
		Expect(root.signals()).To(Equal([]string{"runsv TERM", "job TERM"}))
	})

	It("does not wait forever for jobs that do not exit", func() {
		init := root.startVMProcess("runsvdir", "1", "")
		root.shareNamespace(init, root.startVMProcess("job", "17", ""))
		Expect(reboot()).To(BeZero())
		Expect(init.wasKilled()).To(BeTrue())
		Expect(root.signals()).To(ConsistOf("job TERM"))
	})

	DescribeTable("resumes the suspended init program if it is interrupted", func(signal syscall.Signal) {
		init := root.startVMProcess("runsvdir", "1", "")
		root.shareNamespace(init, root.startVMProcess("job", "17", ""))
		r := root.start(node.Reboot(), append([]string{"STOP_TIMEOUT=300"}, env...)...)
		r.waitUntil(func() bool { return root.signals()[0] == "job TERM" })
		Eventually(init.isStopped).Should(BeTrue()) // the kernel suspends it asynchronously
		r.signal(signal)
		Expect(r.wait()).To(Equal(1))
		Eventually(init.isStopped).Should(BeFalse())
	},
		Entry("by SIGTERM", syscall.SIGTERM),
		Entry("by SIGRTMIN+3", rtminPlus3),
	)

	DescribeTable("makes systemd reboot", func(name string) {
		root.startVMProcess(name, "1", "RTMIN+5")
		Expect(reboot("REBOOT_TIMEOUT=300")).To(BeZero())
		Expect(root.signals()).To(Equal([]string{name + " RTMIN+5"}))
		Expect(root.calls()).To(HaveExactElements(""))
	},
		Entry("with the name systemd", "systemd"),
		Entry("with the name init, like the link to it", "init"),
	)

	It("kills vm-start.sh, which has no jobs yet", func() {
		init := root.startVMProcess("bash", "1", "")
		Expect(reboot()).To(BeZero())
		Expect(init.wasKilled()).To(BeTrue())
		Expect(root.signals()).To(HaveExactElements(""))
	})

	It("kills systemd if it does not exit", func() {
		init := root.startVMProcess("systemd", "1", "")
		Expect(reboot()).To(BeZero())
		Expect(init.wasKilled()).To(BeTrue())
	})

	It("finds PID 1 of the VM, and not PID 1 of a nested PID namespace", func() {
		nested := root.startVMProcess("systemd", "17 1", "RTMIN+5")
		root.startVMProcess("systemd", "1", "RTMIN+5 TERM")
		Expect(reboot("REBOOT_TIMEOUT=300")).To(BeZero())
		Expect(root.signals()).To(HaveLen(1))
		Expect(filepath.Glob(root.path("proc/[0-9]*"))).To(HaveExactElements(root.path(filepath.Clean(nested.file("")))))
	})

	It("does nothing if the request is about another container", func() {
		root.startVMProcess("systemd", "1", "RTMIN+5")
		status, output := reboot("CONTAINER=another")
		Expect(status).To(BeZero())
		Expect(output).To(Equal("VM bosh/agent-a already restarted after the request\n"))
		Expect(root.signals()).To(HaveExactElements(""))
	})

	It("fails if the VM does not run on the node", func() {
		root.addProcess(300, 1, "systemd", inVMB)
		status, output := reboot()
		Expect(status).To(Equal(1))
		Expect(output).To(Equal("the init program of VM bosh/agent-a does not run on this node [vm-not-running]\n"))
	})
})
