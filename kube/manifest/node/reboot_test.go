package node_test

import (
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

var _ = Describe("A reboot", func() {
	var w world
	BeforeEach(func() { w = newWorld() })

	env := []string{"VM=bosh/agent-a", "CONTAINER=c0ffee"}
	reboot := func(more ...string) (int, string) {
		GinkgoHelper()
		return w.run(node.Reboot(), append(append([]string{"TIME_TO_END=1", "INIT_TIME=1"}, env...), more...)...)
	}

	It("has runit's services end, then the jobs, then the init program, and leaves others alone", func() {
		init := w.lives("runsvdir", "1", "")
		supervisor := w.lives("runsv", "18", "TERM")
		service := w.lives("monit", "16", "TERM")
		service.childOf(supervisor)
		job := w.lives("job", "17", "TERM")
		logger := w.lives("svlogd", "19", "TERM")
		kernel := w.lives("kernel's", "20", "TERM")
		w.write(kernel.file("cmdline"), "")
		w.sameNamespace(init, supervisor, service, job, logger, kernel)
		w.sameNamespace(w.lives("in a container of it", "21 1", "TERM"))
		w.lives("in another PID namespace", "22", "TERM")
		Expect(reboot()).To(BeZero())
		Expect(init.killed()).To(BeTrue())
		Expect(w.signals()[0]).To(Equal("runsv TERM"))
		Expect(w.signals()[1:]).To(ConsistOf("monit TERM", "job TERM"))
	})

	It("runs nothing of the machine's", func() {
		w.sameNamespace(w.lives("runsvdir", "1", ""), w.lives("runsv", "18", "TERM"))
		Expect(reboot()).To(BeZero())
		Expect(w.calls()).To(HaveExactElements(""))
	})

	It("tells the jobs once the services have ended, which would start them again", func() {
		init, supervisor := w.lives("runsvdir", "1", ""), w.lives("runsv", "18", "")
		service, job := w.lives("monit", "16", ""), w.lives("job", "17", "TERM")
		service.childOf(supervisor)
		w.sameNamespace(init, supervisor, service, job)
		r := w.start(node.Reboot(), append([]string{"TIME_TO_END=300"}, env...)...)
		r.until(func() bool { return w.signals()[0] != "" })
		Consistently(w.signals, "300ms").Should(Equal([]string{"runsv TERM"}))
		w.remove(service.file(""))
		Expect(r.wait()).To(BeZero())
		Expect(w.signals()).To(Equal([]string{"runsv TERM", "job TERM"}))
	})

	It("does not wait for ever for jobs that do not end", func() {
		init := w.lives("runsvdir", "1", "")
		w.sameNamespace(init, w.lives("job", "17", ""))
		Expect(reboot()).To(BeZero())
		Expect(init.killed()).To(BeTrue())
		Expect(w.signals()).To(ConsistOf("job TERM"))
	})

	DescribeTable("that is cut short lets the init program go on, which it had held so that nothing is started again", func(signal syscall.Signal) {
		init := w.lives("runsvdir", "1", "")
		w.sameNamespace(init, w.lives("job", "17", ""))
		r := w.start(node.Reboot(), append([]string{"TIME_TO_END=300"}, env...)...)
		r.until(func() bool { return w.signals()[0] == "job TERM" })
		Eventually(init.held).Should(BeTrue()) // the kernel stops it when it would run
		r.tell(signal)
		Expect(r.wait()).To(Equal(1))
		Eventually(init.held).Should(BeFalse())
	},
		Entry("by SIGTERM", syscall.SIGTERM),
		Entry("by SIGRTMIN+3", rtminPlus3),
	)

	DescribeTable("asks systemd to reboot", func(name string) {
		w.lives(name, "1", "RTMIN+5")
		Expect(reboot("INIT_TIME=300")).To(BeZero())
		Expect(w.signals()).To(Equal([]string{name + " RTMIN+5"}))
		Expect(w.calls()).To(HaveExactElements(""))
	},
		Entry("by its name", "systemd"),
		Entry("by the name of its link", "init"),
	)

	It("kills the start script, which has nothing to end", func() {
		init := w.lives("bash", "1", "")
		Expect(reboot()).To(BeZero())
		Expect(init.killed()).To(BeTrue())
		Expect(w.signals()).To(HaveExactElements(""))
	})

	It("kills a systemd that does not end", func() {
		init := w.lives("systemd", "1", "")
		Expect(reboot()).To(BeZero())
		Expect(init.killed()).To(BeTrue())
	})

	It("takes the PID 1 of the machine, and not that of a PID namespace within", func() {
		within := w.lives("systemd", "17 1", "RTMIN+5")
		w.lives("systemd", "1", "RTMIN+5 TERM")
		Expect(reboot("INIT_TIME=300")).To(BeZero())
		Expect(w.signals()).To(HaveLen(1))
		Expect(filepath.Glob(w.path("proc/[0-9]*"))).To(HaveExactElements(w.path(filepath.Clean(within.file("")))))
	})

	It("leaves a container alone that is not the one of the request", func() {
		w.lives("systemd", "1", "RTMIN+5")
		status, said := reboot("CONTAINER=another")
		Expect(status).To(BeZero())
		Expect(said).To(Equal("the machine has restarted since the request\n"))
		Expect(w.signals()).To(HaveExactElements(""))
	})

	It("fails where the machine does not run", func() {
		w.process(300, 1, "systemd", inMachineB)
		status, said := reboot()
		Expect(status).To(Equal(1))
		Expect(said).To(Equal("the machine's init program does not run on this node\n"))
	})
})
