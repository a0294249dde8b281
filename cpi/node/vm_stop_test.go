package node_test

import (
	"fmt"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node"
)

var _ = Describe("vm-stop.sh", func() {
	var root fakeRoot
	BeforeEach(func() { root = newFakeRoot() })

	stop := func(init vmProcess) *startedProgram {
		GinkgoHelper()
		return root.start(node.VMStop(), "STOP_TIMEOUT=10", fmt.Sprintf("INIT=%d", init.pid))
	}

	It("terminates runit's services and then the jobs, and leaves the init program to the signal that follows", func() {
		root.mkdir("etc/service/agent")
		root.mkdir("etc/service/monit")
		init := root.startVMProcess("runsvdir", "1", "")
		supervisor, logger := root.startVMProcess("runsv", "18", ""), root.startVMProcess("svlogd", "19", "")
		root.shareNamespace(init, supervisor, logger, root.startVMProcess("job", "17", "TERM"))
		root.shareNamespace(root.startVMProcess("in a container of the VM", "21 1", ""))
		r := stop(init)
		Expect(r.wait()).To(BeZero())
		Expect(root.calls()).To(Equal([]string{"sv -w 1 force-stop /etc/service/agent /etc/service/monit"}))
		Expect(root.signals()).To(Equal([]string{"job TERM"}))
	})

	It("terminates jobs with a PID namespace that a VM with reduced security cannot read", func() {
		init, job := root.startVMProcess("runsvdir", "1", ""), root.startVMProcess("job", "17", "TERM")
		Expect(os.Remove(root.path(job.file("ns/pid")))).To(Succeed())
		Expect(stop(init).wait()).To(BeZero())
		Expect(root.signals()).To(Equal([]string{"job TERM"}))
	})

	It("first waits until clients know that the VM is no longer an endpoint", func() {
		init := root.startVMProcess("runsvdir", "1", "")
		root.shareNamespace(init, root.startVMProcess("job", "17", "TERM"))
		r := root.start(append(node.VMStop(), "0.5"), "STOP_TIMEOUT=10", fmt.Sprintf("INIT=%d", init.pid))
		Consistently(root.signals, "300ms").Should(Equal([]string{""}))
		Expect(r.wait()).To(BeZero())
		Expect(root.signals()).To(Equal([]string{"job TERM"}))
	})

	Describe("with time for drain scripts", func() {
		var init vmProcess
		BeforeEach(func() {
			init = root.startVMProcess("runsvdir", "1", "")
			root.shareNamespace(init, root.startVMProcess("job", "17", "TERM"))
		})
		// writeDrainScript creates the drain script of a job. The variable signals is the file with the signals of the processes.
		writeDrainScript := func(job, script string) {
			root.write("var/vcap/jobs/"+job+"/bin/drain", "#!/bin/bash\nsignals="+filepath.Join(root.state, "signals")+"\n"+script)
		}
		drain := func(seconds string) *startedProgram {
			GinkgoHelper()
			return root.start(append(node.VMStop(), "0", seconds), "STOP_TIMEOUT=10", fmt.Sprintf("INIT=%d", init.pid))
		}

		It("runs those of all jobs before it terminates the jobs", func() {
			for _, job := range []string{"web", "database"} {
				writeDrainScript(job, `echo "`+job+` $*" >>"$signals"; echo 0`)
			}
			Expect(drain("30").wait()).To(BeZero())
			Expect(root.signals()).To(Or(
				Equal([]string{"web job_shutdown hash_unchanged", "database job_shutdown hash_unchanged", "job TERM"}),
				Equal([]string{"database job_shutdown hash_unchanged", "web job_shutdown hash_unchanged", "job TERM"})))
		})

		It("runs a script again after a negative number", func() {
			writeDrainScript("database", `echo "$1" >>"$signals"; [[ $1 == job_shutdown ]] && echo -1 || echo 0`)
			Expect(drain("30").wait()).To(BeZero())
			Expect(root.signals()).To(Equal([]string{"job_shutdown", "job_check_status", "job TERM"}))
		})

		It("terminates the jobs if a script exceeds the time", func() {
			writeDrainScript("database", "exec sleep infinity")
			Expect(drain("1").wait()).To(BeZero())
			Expect(root.signals()).To(Equal([]string{"job TERM"}))
		})

		It("runs no script if the director has stopped the jobs", func() {
			root.write("var/vcap/monit/stopped", "")
			writeDrainScript("database", `echo drained >>"$signals"; echo 0`)
			Expect(drain("30").wait()).To(BeZero())
			Expect(root.signals()).To(Equal([]string{"job TERM"}))
		})

		It("suspends monit, so that it does not start drained jobs again", func() {
			monit := root.startVMProcess("monit", "18", "TERM")
			root.shareNamespace(monit)
			writeDrainScript("database", "until [[ -e "+root.path("drained")+" ]]; do read -r -t 0.05 <> <(:); done; echo 0")
			r := drain("30")
			Eventually(monit.isStopped).Should(BeTrue())
			root.write("drained", "")
			Expect(r.wait()).To(BeZero())
			Expect(root.signals()).To(ConsistOf("job TERM", "monit TERM"))
		})
	})

	It("does not terminate itself", func() {
		init := root.startVMProcess("runsvdir", "1", "")
		r := root.startPausedAt(1, node.VMStop(), []string{"STOP_TIMEOUT=10", fmt.Sprintf("INIT=%d", init.pid)}, func(r *startedProgram) {
			root.write(fmt.Sprintf("proc/%d/status", r.cmd.Process.Pid), "PPid:\t0\nNSpid:\t17\t2\n")
			root.write(fmt.Sprintf("proc/%d/cmdline", r.cmd.Process.Pid), "vm-stop\x00")
		})
		Expect(r.wait()).To(BeZero())
	})

	It("does not wait forever for jobs that do not exit", func() {
		init := root.startVMProcess("runsvdir", "1", "")
		root.shareNamespace(init, root.startVMProcess("job", "17", ""))
		Expect(stop(init).wait()).To(BeZero())
	})

	It("leaves the shutdown to systemd, and waits until systemd exits", func() {
		init := root.startVMProcess("systemd", "1", "")
		r := stop(init)
		r.waitUntil(func() bool { return root.signals()[0] == "systemd RTMIN+3" })
		Consistently(r.exited, "300ms").ShouldNot(BeClosed())
		root.remove(init.file(""))
		Expect(r.wait()).To(BeZero())
		Expect(root.calls()).To(HaveExactElements(""))
	})

	It("succeeds when systemd terminates the remaining processes", func() {
		r := stop(root.startVMProcess("init", "1", ""))
		r.waitUntil(func() bool { return root.signals()[0] == "init RTMIN+3" })
		r.signal(15)
		Expect(r.wait()).To(BeZero())
	})

	It("does nothing while vm-start.sh is running", func() {
		init := root.startVMProcess("bash", "1", "")
		Expect(stop(init).wait()).To(BeZero())
		Expect(root.signals()).To(HaveExactElements(""))
	})
})
