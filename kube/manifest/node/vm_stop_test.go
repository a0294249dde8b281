package node_test

import (
	"fmt"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

var _ = Describe("A machine's end", func() {
	var w fakeRoot
	BeforeEach(func() { w = newFakeRoot() })

	stop := func(init vmProcess) *startedProgram {
		GinkgoHelper()
		return w.start(node.VMStop(), "TIME_TO_END=10", fmt.Sprintf("INIT=%d", init.pid))
	}

	It("has runit's services and then the jobs end, and leaves the init program to the signal that follows", func() {
		w.mkdir("etc/service/agent")
		w.mkdir("etc/service/monit")
		init, supervisor, logger := w.startVMProcess("runsvdir", "1", ""), w.startVMProcess("runsv", "18", ""), w.startVMProcess("svlogd", "19", "")
		w.shareNamespace(init, supervisor, logger, w.startVMProcess("job", "17", "TERM"))
		w.shareNamespace(w.startVMProcess("in a container of it", "21 1", ""))
		r := stop(init)
		Expect(r.wait()).To(BeZero())
		Expect(w.calls()).To(Equal([]string{"sv -w 1 force-stop /etc/service/agent /etc/service/monit"}))
		Expect(w.signals()).To(Equal([]string{"job TERM"}))
	})

	It("has jobs end of which a machine with reduced security may not see the namespace", func() {
		init, job := w.startVMProcess("runsvdir", "1", ""), w.startVMProcess("job", "17", "TERM")
		Expect(os.Remove(w.path(job.file("ns/pid")))).To(Succeed())
		Expect(stop(init).wait()).To(BeZero())
		Expect(w.signals()).To(Equal([]string{"job TERM"}))
	})

	It("comes after the time in which clients hear that it serves no more", func() {
		init := w.startVMProcess("runsvdir", "1", "")
		w.shareNamespace(init, w.startVMProcess("job", "17", "TERM"))
		r := w.start(append(node.VMStop(), "0.5"), "TIME_TO_END=10", fmt.Sprintf("INIT=%d", init.pid))
		Consistently(w.signals, "300ms").Should(Equal([]string{""}))
		Expect(r.wait()).To(BeZero())
		Expect(w.signals()).To(Equal([]string{"job TERM"}))
	})

	It("spares this program", func() {
		init := w.startVMProcess("runsvdir", "1", "")
		r := w.startPausedAt(1, node.VMStop(), []string{"TIME_TO_END=10", fmt.Sprintf("INIT=%d", init.pid)}, func(r *startedProgram) {
			w.write(fmt.Sprintf("proc/%d/status", r.cmd.Process.Pid), "PPid:\t0\nNSpid:\t17\t2\n")
			w.write(fmt.Sprintf("proc/%d/cmdline", r.cmd.Process.Pid), "machine-stop\x00")
		})
		Expect(r.wait()).To(BeZero())
	})

	It("does not wait for ever for jobs that do not end", func() {
		init := w.startVMProcess("runsvdir", "1", "")
		w.shareNamespace(init, w.startVMProcess("job", "17", ""))
		Expect(stop(init).wait()).To(BeZero())
	})

	It("is systemd's own, until that is gone", func() {
		init := w.startVMProcess("systemd", "1", "")
		r := stop(init)
		r.waitUntil(func() bool { return w.signals()[0] == "systemd RTMIN+3" })
		Consistently(r.exited, "300ms").ShouldNot(BeClosed())
		w.remove(init.file(""))
		Expect(r.wait()).To(BeZero())
		Expect(w.calls()).To(HaveExactElements(""))
	})

	It("ends well when systemd tells what is left to end", func() {
		r := stop(w.startVMProcess("init", "1", ""))
		r.waitUntil(func() bool { return w.signals()[0] == "init RTMIN+3" })
		r.signal(15)
		Expect(r.wait()).To(BeZero())
	})

	It("comes at once when the start script still waits", func() {
		init := w.startVMProcess("bash", "1", "")
		Expect(stop(init).wait()).To(BeZero())
		Expect(w.signals()).To(HaveExactElements(""))
	})
})
