package node_test

import (
	"fmt"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

var _ = Describe("A machine's end", func() {
	var w world
	BeforeEach(func() { w = newWorld() })

	stop := func(init inhabitant) *running {
		GinkgoHelper()
		return w.start(node.MachineStop(), "TIME_TO_END=10", fmt.Sprintf("INIT=%d", init.number))
	}

	It("has runit's services and then the jobs end, and leaves the init program to the signal that follows", func() {
		w.folder("etc/service/agent")
		w.folder("etc/service/monit")
		init, supervisor, logger := w.lives("runsvdir", "1", ""), w.lives("runsv", "18", ""), w.lives("svlogd", "19", "")
		w.sameNamespace(init, supervisor, logger, w.lives("job", "17", "TERM"))
		w.sameNamespace(w.lives("in a container of it", "21 1", ""))
		r := stop(init)
		Expect(r.wait()).To(BeZero())
		Expect(w.calls()).To(Equal([]string{"sv -w 1 force-stop /etc/service/agent /etc/service/monit"}))
		Expect(w.signals()).To(Equal([]string{"job TERM"}))
	})

	It("has jobs end of which a machine with reduced security may not see the namespace", func() {
		init, job := w.lives("runsvdir", "1", ""), w.lives("job", "17", "TERM")
		Expect(os.Remove(w.path(job.file("ns/pid")))).To(Succeed())
		Expect(stop(init).wait()).To(BeZero())
		Expect(w.signals()).To(Equal([]string{"job TERM"}))
	})

	It("comes after the time in which clients hear that it serves no more", func() {
		init := w.lives("runsvdir", "1", "")
		w.sameNamespace(init, w.lives("job", "17", "TERM"))
		r := w.start(append(node.MachineStop(), "0.5"), "TIME_TO_END=10", fmt.Sprintf("INIT=%d", init.number))
		Consistently(w.signals, "300ms").Should(Equal([]string{""}))
		Expect(r.wait()).To(BeZero())
		Expect(w.signals()).To(Equal([]string{"job TERM"}))
	})

	It("spares this program", func() {
		init := w.lives("runsvdir", "1", "")
		r := w.at(1, node.MachineStop(), []string{"TIME_TO_END=10", fmt.Sprintf("INIT=%d", init.number)}, func(r *running) {
			w.write(fmt.Sprintf("proc/%d/status", r.cmd.Process.Pid), "PPid:\t0\nNSpid:\t17\t2\n")
			w.write(fmt.Sprintf("proc/%d/cmdline", r.cmd.Process.Pid), "machine-stop\x00")
		})
		Expect(r.wait()).To(BeZero())
	})

	It("does not wait for ever for jobs that do not end", func() {
		init := w.lives("runsvdir", "1", "")
		w.sameNamespace(init, w.lives("job", "17", ""))
		Expect(stop(init).wait()).To(BeZero())
	})

	It("is systemd's own, until that is gone", func() {
		init := w.lives("systemd", "1", "")
		r := stop(init)
		r.until(func() bool { return w.signals()[0] == "systemd RTMIN+3" })
		Consistently(r.ended, "300ms").ShouldNot(BeClosed())
		w.remove(init.file(""))
		Expect(r.wait()).To(BeZero())
		Expect(w.calls()).To(HaveExactElements(""))
	})

	It("ends well when systemd tells what is left to end", func() {
		r := stop(w.lives("init", "1", ""))
		r.until(func() bool { return w.signals()[0] == "init RTMIN+3" })
		r.tell(15)
		Expect(r.wait()).To(BeZero())
	})

	It("comes at once when the start script still waits", func() {
		init := w.lives("bash", "1", "")
		Expect(stop(init).wait()).To(BeZero())
		Expect(w.signals()).To(HaveExactElements(""))
	})
})
