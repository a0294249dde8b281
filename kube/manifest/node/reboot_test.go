package node_test

import (
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

var _ = Describe("A reboot", func() {
	var w fakeRoot
	BeforeEach(func() { w = newFakeRoot() })

	env := []string{"VM=bosh/agent-a", "CONTAINER=c0ffee"}
	reboot := func(more ...string) (int, string) {
		GinkgoHelper()
		return w.run(node.Reboot(), append(append([]string{"TIME_TO_END=1", "INIT_TIME=1"}, env...), more...)...)
	}

	It("has runit's services end, then the jobs, then the init program, and leaves others alone", func() {
		init := w.startVMProcess("runsvdir", "1", "")
		supervisor := w.startVMProcess("runsv", "18", "TERM")
		service := w.startVMProcess("monit", "16", "TERM")
		service.setParent(supervisor)
		job := w.startVMProcess("job", "17", "TERM")
		logger := w.startVMProcess("svlogd", "19", "TERM")
		kernel := w.startVMProcess("kernel's", "20", "TERM")
		w.write(kernel.file("cmdline"), "")
		w.shareNamespace(init, supervisor, service, job, logger, kernel)
		w.shareNamespace(w.startVMProcess("in a container of it", "21 1", "TERM"))
		w.startVMProcess("in another PID namespace", "22", "TERM")
		Expect(reboot()).To(BeZero())
		Expect(init.wasKilled()).To(BeTrue())
		Expect(w.signals()[0]).To(Equal("runsv TERM"))
		Expect(w.signals()[1:]).To(ConsistOf("monit TERM", "job TERM"))
	})

	It("runs nothing of the machine's", func() {
		w.shareNamespace(w.startVMProcess("runsvdir", "1", ""), w.startVMProcess("runsv", "18", "TERM"))
		Expect(reboot()).To(BeZero())
		Expect(w.calls()).To(HaveExactElements(""))
	})

	It("tells the jobs once the services have ended, which would start them again", func() {
		init, supervisor := w.startVMProcess("runsvdir", "1", ""), w.startVMProcess("runsv", "18", "")
		service, job := w.startVMProcess("monit", "16", ""), w.startVMProcess("job", "17", "TERM")
		service.setParent(supervisor)
		w.shareNamespace(init, supervisor, service, job)
		r := w.start(node.Reboot(), append([]string{"TIME_TO_END=300"}, env...)...)
		r.waitUntil(func() bool { return w.signals()[0] != "" })
		Consistently(w.signals, "300ms").Should(Equal([]string{"runsv TERM"}))
		w.remove(service.file(""))
		Expect(r.wait()).To(BeZero())
		Expect(w.signals()).To(Equal([]string{"runsv TERM", "job TERM"}))
	})

	It("does not wait for ever for jobs that do not end", func() {
		init := w.startVMProcess("runsvdir", "1", "")
		w.shareNamespace(init, w.startVMProcess("job", "17", ""))
		Expect(reboot()).To(BeZero())
		Expect(init.wasKilled()).To(BeTrue())
		Expect(w.signals()).To(ConsistOf("job TERM"))
	})

	DescribeTable("that is cut short lets the init program go on, which it had held so that nothing is started again", func(signal syscall.Signal) {
		init := w.startVMProcess("runsvdir", "1", "")
		w.shareNamespace(init, w.startVMProcess("job", "17", ""))
		r := w.start(node.Reboot(), append([]string{"TIME_TO_END=300"}, env...)...)
		r.waitUntil(func() bool { return w.signals()[0] == "job TERM" })
		Eventually(init.isStopped).Should(BeTrue()) // the kernel stops it when it would run
		r.signal(signal)
		Expect(r.wait()).To(Equal(1))
		Eventually(init.isStopped).Should(BeFalse())
	},
		Entry("by SIGTERM", syscall.SIGTERM),
		Entry("by SIGRTMIN+3", rtminPlus3),
	)

	DescribeTable("asks systemd to reboot", func(name string) {
		w.startVMProcess(name, "1", "RTMIN+5")
		Expect(reboot("INIT_TIME=300")).To(BeZero())
		Expect(w.signals()).To(Equal([]string{name + " RTMIN+5"}))
		Expect(w.calls()).To(HaveExactElements(""))
	},
		Entry("by its name", "systemd"),
		Entry("by the name of its link", "init"),
	)

	It("kills the start script, which has nothing to end", func() {
		init := w.startVMProcess("bash", "1", "")
		Expect(reboot()).To(BeZero())
		Expect(init.wasKilled()).To(BeTrue())
		Expect(w.signals()).To(HaveExactElements(""))
	})

	It("kills a systemd that does not end", func() {
		init := w.startVMProcess("systemd", "1", "")
		Expect(reboot()).To(BeZero())
		Expect(init.wasKilled()).To(BeTrue())
	})

	It("takes the PID 1 of the machine, and not that of a PID namespace within", func() {
		within := w.startVMProcess("systemd", "17 1", "RTMIN+5")
		w.startVMProcess("systemd", "1", "RTMIN+5 TERM")
		Expect(reboot("INIT_TIME=300")).To(BeZero())
		Expect(w.signals()).To(HaveLen(1))
		Expect(filepath.Glob(w.path("proc/[0-9]*"))).To(HaveExactElements(w.path(filepath.Clean(within.file("")))))
	})

	It("leaves a container alone that is not the one of the request", func() {
		w.startVMProcess("systemd", "1", "RTMIN+5")
		status, output := reboot("CONTAINER=another")
		Expect(status).To(BeZero())
		Expect(output).To(Equal("the machine has restarted since the request\n"))
		Expect(w.signals()).To(HaveExactElements(""))
	})

	It("fails where the machine does not run", func() {
		w.addProcess(300, 1, "systemd", inVMB)
		status, output := reboot()
		Expect(status).To(Equal(1))
		Expect(output).To(Equal("the machine's init program does not run on this node\n"))
	})
})
