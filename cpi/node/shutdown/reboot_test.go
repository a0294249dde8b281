//go:build linux

package shutdown_test

import (
	"context"
	"errors"
	"fmt"
	"os"
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

var _ = Describe("A reboot", func() {
	var root Root
	BeforeEach(func() { root = New() })
	ctx := context.Background()
	request := api.VMReboot{VM: vm, Container: container}
	reboot := func(sys system.System, exit, systemdExit time.Duration) error {
		return shutdown.RebootWith(ctx, sys, request, exit, systemdExit)
	}

	It("terminates runit's services, then the jobs, then the init program, and no other processes", func() {
		init := start(root, "runsvdir", 1)
		supervisor, monit := start(root, "runsv", 18), start(root, "monit", 16)
		monit.setParent(supervisor)
		job, logger, nested := start(root, "job", 17), start(root, "svlogd", 19), start(root, "in a container of the VM", 21, 1)
		zombie, other := start(root, "zombie", 20), start(root, "in another VM", 22)
		root.Write(zombie.file("status"), fmt.Sprintf("Name:\tzombie\nState:\tZ (zombie)\nPPid:\t%d\nNSpid:\t%d\t20\n", init.id, zombie.id))
		root.Link("pid:[other]", other.file("ns/pid"))
		sys := root.System()
		sys.Before = func(call, path string) error {
			if _, err := os.Stat(root.Path(monit.file("status"))); call == "kill" && path == fmt.Sprintf("/proc/%d", job.id) && err == nil {
				return errors.New("services restart jobs, so they must exit first")
			}
			return nil
		}
		result := background(func() error { return reboot(sys, long, long) })
		Expect(supervisor.endedBy()).To(Equal(syscall.SIGTERM))
		Eventually(init.isStopped).Should(BeTrue())
		root.Remove(monit.file(""))
		Eventually(result).Should(Receive(BeNil()))
		Expect(job.endedBy()).To(Equal(syscall.SIGTERM))
		Expect(init.endedBy()).To(Equal(syscall.SIGKILL))
		for _, p := range []*runningProcess{logger, nested, zombie, other, monit} {
			Expect(p.isRunning()).To(BeTrue())
		}
	})

	It("fails if it cannot read the PID namespace of the init program", func() {
		init := start(root, "runsvdir", 1)
		sys := root.System()
		sys.Before = func(_, path string) error {
			if path == "/"+init.file("ns/pid") {
				return unix.EACCES
			}
			return nil
		}
		Expect(reboot(sys, short, long)).To(MatchError(unix.EACCES))
		Expect(init.isRunning()).To(BeTrue())
		Eventually(init.isStopped).Should(BeFalse())
	})

	It("sends no signals to processes with a PID namespace that cannot be read", func() {
		init, other := start(root, "runsvdir", 1), start(root, "other", 7)
		sys := root.System()
		sys.Before = func(_, path string) error {
			if path == "/"+other.file("ns/pid") {
				return unix.EACCES
			}
			return nil
		}
		Expect(reboot(sys, long, long)).To(Succeed())
		Expect(init.endedBy()).To(Equal(syscall.SIGKILL))
		Expect(other.isRunning()).To(BeTrue())
	})

	It("sends no signals to such processes if the init program exits", func() {
		init, other := start(root, "runsvdir", 1), start(root, "other", 7)
		sys := root.System()
		sys.Before = func(_, path string) error {
			switch path {
			case "/" + init.file("ns/pid"):
				return unix.ESRCH
			case "/" + other.file("ns/pid"):
				return unix.EACCES
			}
			return nil
		}
		Expect(reboot(sys, long, long)).To(Succeed())
		Expect(other.isRunning()).To(BeTrue())
	})

	It("does not wait forever for jobs that do not exit", func() {
		init, job := start(root, "runsvdir", 1), startStubborn(root, "job", 17)
		Expect(reboot(root.System(), short, long)).To(Succeed())
		Expect(init.endedBy()).To(Equal(syscall.SIGKILL))
		Expect(job.isRunning()).To(BeTrue())
	})

	It("resumes the suspended init program if it is interrupted", func() {
		init, job := start(root, "runsvdir", 1), startStubborn(root, "job", 17)
		interrupted, interrupt := context.WithCancel(ctx)
		result := background(func() error { return shutdown.RebootWith(interrupted, root.System(), request, long, long) })
		Eventually(init.isStopped).Should(BeTrue())
		interrupt()
		Eventually(result).Should(Receive(MatchError(context.Canceled)))
		Eventually(init.isStopped).Should(BeFalse())
		Expect(init.isRunning()).To(BeTrue())
		Expect(job.isRunning()).To(BeTrue())
	})

	DescribeTable("makes systemd reboot", func(name string) {
		init := start(root, name, 1)
		Expect(reboot(root.System(), long, long)).To(Succeed())
		Expect(init.endedBy()).To(Equal(syscall.Signal(39)))
	},
		Entry("with the name systemd", "systemd"),
		Entry("with the name init, like the link to it", "init"),
	)

	It("kills systemd if it does not exit", func() {
		init := startCommand(root, "systemd", []int{1}, "env", "--ignore-signal=RTMIN+5", "sleep", "infinity")
		Expect(reboot(root.System(), short, short)).To(Succeed())
		Expect(init.endedBy()).To(Equal(syscall.SIGKILL))
	})

	It("does not kill systemd if it is interrupted", func() {
		init := startCommand(root, "systemd", []int{1}, "env", "--ignore-signal=RTMIN+5", "sleep", "infinity")
		interrupted, interrupt := context.WithCancel(ctx)
		sys := root.System()
		sys.Before = func(call, _ string) error {
			if call == "poll" {
				interrupt()
			}
			return nil
		}
		Expect(shutdown.RebootWith(interrupted, sys, request, long, long)).To(MatchError(context.Canceled))
		Expect(init.isRunning()).To(BeTrue())
	})

	It("kills a VM that is still starting, and has no jobs yet", func() {
		init, job := start(root, "bosh-node", 1), start(root, "cp", 2)
		Expect(shutdown.Reboot(ctx, root.System(), request)).To(Succeed())
		Expect(init.endedBy()).To(Equal(syscall.SIGKILL))
		Expect(job.isRunning()).To(BeTrue())
	})

	It("finds PID 1 of the VM, and not PID 1 of a nested PID namespace", func() {
		nested, init := start(root, "systemd", 17, 1), start(root, "systemd", 1)
		Expect(reboot(root.System(), long, long)).To(Succeed())
		Expect(init.endedBy()).To(Equal(syscall.Signal(39)))
		Expect(nested.isRunning()).To(BeTrue())
	})

	It("does nothing if the request is about another container", func() {
		init := start(root, "systemd", 1)
		Expect(shutdown.RebootWith(ctx, root.System(), api.VMReboot{VM: vm, Container: "another"}, long, long)).To(Succeed())
		Expect(init.isRunning()).To(BeTrue())
	})

	It("does nothing if the container exits meanwhile", func() {
		init := start(root, "systemd", 1)
		root.Remove(init.file("cgroup"))
		Expect(reboot(root.System(), long, long)).To(Succeed())
		Expect(init.isRunning()).To(BeTrue())
	})

	It("fails if the VM does not run on the node", func() {
		root.Add(Process{ID: 300, Name: "systemd", InnerIDs: []int{1}, Mounts: []string{InVM("bosh/agent-b")}})
		err := reboot(root.System(), long, long)
		Expect(err).To(MatchError("the init program of VM bosh/agent-a does not run on this node"))
		Expect(api.ResultOf(err, "").Code).To(Equal("vm-not-running"))
	})

	DescribeTable("sends no signal to a process that has the ID of one that exited", func(change func(init, job *runningProcess)) {
		init, job := start(root, "runsvdir", 1), start(root, "job", 17)
		sys := root.System()
		sys.Before = func(call, _ string) error {
			if call == "pidfd_open" {
				change(init, job)
			}
			return nil
		}
		_ = reboot(sys, short, long)
		Expect(job.isRunning()).To(BeTrue())
	},
		Entry("in another PID namespace", func(_, job *runningProcess) { root.Link("pid:[other]", job.file("ns/pid")) }),
		Entry("at another level", func(_, job *runningProcess) { root.Write(job.file("status"), "Name:\tjob\nPPid:\t0\nNSpid:\t7\n") }),
		Entry("without init program", func(init, _ *runningProcess) { root.Remove(init.file("")) }),
	)

	It("sends no signal to an init program that restarts at the same time", func() {
		init, another := start(root, "runsvdir", 1), start(root, "job", 17)
		root.Write(init.file("cgroup"), "0::/kubepods/another\n")
		sys, restarted := root.System(), false
		sys.Before = func(call, _ string) error {
			if call == "pidfd_open" && !restarted {
				restarted = true
				root.Write(another.file("status"), "Name:\tsystemd\nPPid:\t0\nNSpid:\t18\t1\n")
				root.Write(another.file("cgroup"), "0::/kubepods/another\n")
				root.Remove(init.file(""))
			}
			return nil
		}
		Expect(reboot(sys, long, long)).To(Succeed())
		Expect(init.isRunning()).To(BeTrue())
		Expect(another.isRunning()).To(BeTrue())
	})

	It("never leaves the init program suspended, and never terminates others, whatever call fails", func() {
		for failing, failed := 1, true; failed; failing++ {
			init, job, other := start(root, "runsvdir", 1), start(root, "job", 17), start(root, "other", 22)
			root.Link("pid:[other]", other.file("ns/pid"))
			sys, calls := root.System(), 0
			failed = false
			sys.Before = func(string, string) error {
				if calls++; calls == failing {
					failed = true
					return unix.EIO
				}
				return nil
			}
			err := reboot(sys, short, short)
			if err != nil {
				Expect(err).To(MatchError(unix.EIO))
				Eventually(init.isStopped).Should(BeFalse(), "%d", failing)
				Expect(init.isRunning()).To(BeTrue())
			} else {
				Expect(init.endedBy()).To(Equal(syscall.SIGKILL))
			}
			Expect(other.isRunning()).To(BeTrue())
			for _, p := range []*runningProcess{init, job, other} {
				_ = unix.Kill(p.id, unix.SIGKILL)
				Eventually(p.exited).Should(BeClosed())
			}
		}
	})
})
