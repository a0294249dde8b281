//go:build linux

package shutdown_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/shutdown"
	"bosh-kubernetes-cpi/cpi/node/system"
	. "bosh-kubernetes-cpi/test/harness/processtest"
)

var _ = Describe("A stop in the VM", func() {
	var root Root
	var ctx context.Context
	var interrupt context.CancelFunc
	BeforeEach(func() {
		root = New()
		ctx, interrupt = context.WithCancel(context.Background()) //nolint:fatcontext // a new one for each spec
		DeferCleanup(interrupt)
		root.Write("bin/sv", "#!/bin/sh\necho sv \"$@\" >>"+root.Path("log"))
		GinkgoT().Setenv("PATH", root.Path("bin")+":"+os.Getenv("PATH"))
	})
	stopWith := func(sys system.System, init *runningProcess, request api.VMStop, exit time.Duration) error {
		return shutdown.StopWith(ctx, sys, request, init.id, exit)
	}
	stop := func(init *runningProcess) error { return stopWith(root.System(), init, api.VMStop{}, 10*time.Second) }
	log := func() string {
		content, _ := os.ReadFile(root.Path("log"))
		return string(content)
	}

	It("terminates runit's services and then the jobs, and leaves the init program to the signal that follows", func() {
		root.Mkdir("etc/service/agent")
		root.Mkdir("etc/service/monit")
		init, supervisor, logger := start(root, "runsvdir", 1), start(root, "runsv", 18), start(root, "svlogd", 19)
		job, nested := start(root, "job", 17), start(root, "in a container of the VM", 21, 1)
		Expect(stop(init)).To(Succeed())
		Expect(log()).To(Equal("sv -w 10 force-stop " + root.Path("etc/service/agent") + " " + root.Path("etc/service/monit") + "\n"))
		Expect(job.endedBy()).To(Equal(syscall.SIGTERM))
		for _, p := range []*runningProcess{init, supervisor, logger, nested} {
			Expect(p.isRunning()).To(BeTrue())
		}
	})

	It("terminates the jobs if the services cannot be stopped", func() {
		root.Mkdir("etc/service/agent")
		root.Write("bin/sv", "#!/none")
		init, job := start(root, "runsvdir", 1), start(root, "job", 17)
		Expect(stop(init)).To(Succeed())
		Expect(job.endedBy()).To(Equal(syscall.SIGTERM))
	})

	DescribeTable("terminates jobs with a PID namespace that a VM with reduced security cannot read", func(err error) {
		init, job := start(root, "runsvdir", 1), start(root, "job", 17)
		sys := root.System()
		sys.Before = func(_, path string) error {
			if path == "/"+job.file("ns/pid") {
				return err
			}
			return nil
		}
		Expect(stopWith(sys, init, api.VMStop{}, long)).To(Succeed())
		Expect(job.endedBy()).To(Equal(syscall.SIGTERM))
	},
		Entry("without permission", unix.EACCES),
		Entry("in gVisor", unix.ENOENT),
	)

	It("first waits until clients know that the VM is no longer an endpoint", func() {
		init, job := start(root, "runsvdir", 1), start(root, "job", 17)
		interrupt()
		Expect(stopWith(root.System(), init, api.VMStop{ServeSeconds: 3600}, long)).To(MatchError(context.Canceled))
		Expect(job.isRunning()).To(BeTrue())
	})

	It("wakes up suspended jobs", func() {
		init, job := start(root, "runsvdir", 1), start(root, "job", 17)
		Expect(unix.Kill(job.id, unix.SIGSTOP)).To(Succeed())
		Expect(stop(init)).To(Succeed())
		Expect(job.endedBy()).To(Equal(syscall.SIGTERM))
	})

	It("does not terminate itself, and the shell that runs it", func() {
		init := start(root, "runsvdir", 1)
		root.Add(Process{ID: os.Getpid(), Name: "bosh-node", InnerIDs: []int{2}, Namespace: "vm"})
		Expect(stopWith(root.System(), init, api.VMStop{}, short)).To(Succeed())
	})

	It("does not wait forever for jobs that do not exit", func() {
		init, job := start(root, "runsvdir", 1), startStubborn(root, "job", 17)
		Expect(stopWith(root.System(), init, api.VMStop{}, short)).To(Succeed())
		Expect(job.isRunning()).To(BeTrue())
	})

	DescribeTable("leaves the shutdown to systemd, and waits until systemd exits", func(name string) {
		init, job := start(root, name, 1), start(root, "job", 17)
		Expect(stop(init)).To(Succeed())
		Expect(init.endedBy()).To(Equal(syscall.Signal(37)))
		Expect(job.isRunning()).To(BeTrue())
	},
		Entry("with the name systemd", "systemd"),
		Entry("with the name init, like the link to it", "init"),
	)

	It("succeeds when systemd terminates the remaining processes", func() {
		init := startCommand(root, "systemd", []int{1}, "env", "--ignore-signal=RTMIN+3", "sleep", "infinity")
		sys := root.System()
		sys.Before = func(call, _ string) error {
			if call == "poll" {
				interrupt()
			}
			return nil
		}
		Expect(stopWith(sys, init, api.VMStop{}, long)).To(Succeed())
		Expect(init.isRunning()).To(BeTrue())
	})

	It("does nothing while the VM is starting", func() {
		init, job := start(root, "bosh-node", 1), start(root, "cp", 2)
		Expect(stopWith(root.System(), init, api.VMStop{DrainSeconds: 30}, long)).To(Succeed())
		Expect(job.isRunning()).To(BeTrue())
	})

	It("fails without an init program", func() {
		Expect(shutdown.Stop(ctx, root.System(), api.VMStop{})).To(MatchError("find the init program of the VM: it does not run"))
	})

	It("fails without signals if it cannot find out which processes there are", func() {
		init, job := start(root, "runsvdir", 1), start(root, "job", 17)
		sys := root.System()
		sys.Before = func(_, path string) error {
			if path == "/"+job.file("ns/pid") {
				return unix.EIO
			}
			return nil
		}
		Expect(stopWith(sys, init, api.VMStop{}, short)).To(MatchError(unix.EIO))
		Expect(job.isRunning()).To(BeTrue())
	})

	It("terminates the other jobs if one cannot be signaled, or exits", func() {
		init, jobs := start(root, "runsvdir", 1), []*runningProcess{}
		for id := range 3 {
			jobs = append(jobs, start(root, "job", 17+id))
		}
		sys := root.System()
		sys.Before = func(call, path string) error {
			switch {
			case call == "kill" && path == fmt.Sprintf("/proc/%d", jobs[0].id):
				return unix.EPERM
			case call == "pidfd_open" && path == fmt.Sprintf("/proc/%d", jobs[1].id):
				return unix.ESRCH
			}
			return nil
		}
		Expect(stopWith(sys, init, api.VMStop{}, short)).To(Succeed())
		Expect(jobs[2].endedBy()).To(Equal(syscall.SIGTERM))
		Expect(jobs[0].isRunning()).To(BeTrue())
	})

	It("works without process handles, in gVisor", func() {
		init, job := start(root, "runsvdir", 1), start(root, "job", 17)
		sys := root.System()
		sys.Before = func(call, _ string) error {
			if call == "pidfd_open" {
				return unix.ENOSYS
			}
			return nil
		}
		Expect(stopWith(sys, init, api.VMStop{}, long)).To(Succeed())
		Expect(job.endedBy()).To(Equal(syscall.SIGTERM))
		root.Write(init.file("status"), "Name:\tsystemd\nPPid:\t0\n")
		Expect(stopWith(sys, init, api.VMStop{}, long)).To(Succeed())
		Expect(init.endedBy()).To(Equal(syscall.Signal(37)))
	})

	Describe("with time for drain scripts", func() {
		var init, job *runningProcess
		BeforeEach(func() { init, job = start(root, "runsvdir", 1), start(root, "job", 17) })
		// writeDrainScript creates the drain script of a job. The function log writes to a file; alive fails after the job was terminated.
		writeDrainScript := func(name, script string) {
			root.Write("var/vcap/jobs/"+name+"/bin/drain", fmt.Sprintf(
				"#!/bin/bash\nlog() { echo \"$@\" >>%s; }\nalive() { kill -0 %d; }\n%s\n", root.Path("log"), job.id, script))
		}
		drain := func(seconds int) error {
			return stopWith(root.System(), init, api.VMStop{DrainSeconds: seconds}, 10*time.Second)
		}

		It("runs those of all jobs before it terminates the jobs", func() {
			for _, name := range []string{"web", "database"} {
				writeDrainScript(name, "alive && log "+name+` "$@"; echo 0`)
			}
			root.Write("var/vcap/jobs/none/bin/other", "")
			root.Write("var/vcap/jobs/disabled/bin/drain", "#!/bin/sh\necho disabled >>"+root.Path("log"))
			Expect(os.Chmod(root.Path("var/vcap/jobs/disabled/bin/drain"), 0o600)).To(Succeed())
			Expect(drain(30)).To(Succeed())
			Expect(strings.Split(log(), "\n")).To(ConsistOf("web job_shutdown hash_unchanged", "database job_shutdown hash_unchanged", ""))
			Expect(job.endedBy()).To(Equal(syscall.SIGTERM))
		})

		It("runs a script again after a negative number", func() {
			writeDrainScript("database", `log "$1"; [[ $1 == job_shutdown ]] && echo -1 || echo 0`)
			Expect(drain(30)).To(Succeed())
			Expect(log()).To(Equal("job_shutdown\njob_check_status\n"))
		})

		DescribeTable("runs a script only once", func(script string) {
			writeDrainScript("database", "log ran\n"+script)
			Expect(drain(3600)).To(Succeed())
			Expect(log()).To(Equal("ran\n"))
		},
			Entry("that fails", "echo -1; exit 1"),
			Entry("that prints something else", "echo later"),
			Entry("that prints negative zero", "echo -0"),
			Entry("that prints no sensible number", "echo -99999999999999999999"),
		)

		It("terminates the jobs if scripts exceed the time, also with processes that outlive them", func() {
			writeDrainScript("database", "sleep infinity & trap '' TERM; log $!; wait; wait; exec sleep infinity")
			writeDrainScript("web", "echo 3600")
			Expect(drain(1)).To(Succeed())
			Expect(job.endedBy()).To(Equal(syscall.SIGTERM))
			child := strings.TrimSpace(log())
			Eventually(func() string { stat, _ := os.ReadFile("/proc/" + child + "/stat"); return string(stat) }).
				Should(Or(BeEmpty(), ContainSubstring(") Z ")))
		})

		It("runs no script if the director has stopped the jobs", func() {
			root.Write("var/vcap/monit/stopped", "")
			writeDrainScript("database", "log drained; echo 0")
			Expect(drain(30)).To(Succeed())
			Expect(log()).To(BeEmpty())
			Expect(job.endedBy()).To(Equal(syscall.SIGTERM))
		})

		It("suspends monit, so that it does not start drained jobs again", func() {
			monit := start(root, "monit", 18)
			writeDrainScript("database", "until [[ -e "+root.Path("drained")+" ]]; do read -r -t 0.05 <> <(:); done; echo 0")
			result := background(func() error { return drain(3600) })
			Eventually(monit.isStopped).Should(BeTrue())
			Expect(job.isStopped()).To(BeFalse())
			root.Write("drained", "")
			Eventually(result).Should(Receive(BeNil()))
			Expect(job.endedBy()).To(Equal(syscall.SIGTERM))
			Expect(monit.endedBy()).To(Equal(syscall.SIGTERM))
		})

		DescribeTable("terminates the jobs if it cannot drain them", func(failing string) {
			writeDrainScript("database", "echo 0")
			sys, failed := root.System(), false
			sys.Before = func(_, path string) error {
				if path == failing {
					failed = true
					return errors.New("failed")
				}
				return nil
			}
			Expect(stopWith(sys, init, api.VMStop{DrainSeconds: 30}, long)).To(Succeed())
			Expect(failed).To(BeTrue())
			Expect(job.endedBy()).To(Equal(syscall.SIGTERM))
		},
			Entry("because its state is unknown", "/var/vcap/monit/stopped"),
			Entry("because it cannot list them", "/var/vcap/jobs"),
			Entry("because it cannot find a script", "/var/vcap/jobs/database/bin/drain"),
		)
	})
})
