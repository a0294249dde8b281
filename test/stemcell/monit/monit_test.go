package monit_test

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("monit, as the agent uses it,", func() {
	It("starts a job that does not run, and tells of its process", func() {
		m := newMachine()
		m.job("keeper")
		m.boot()
		m.reaches("keeper", "running")
		Eventually(func() int { return m.service("keeper").Uptime }).Should(BeNumerically(">", 0))
		Expect(m.service("keeper").Memory.KilobyteTotal).To(BeNumerically(">", 0))
		Expect(m.read("keeper.calls")).To(Equal("start\n"))
	})

	It("stops a job and no longer monitors it", func() {
		m := newMachine()
		m.job("keeper")
		m.boot()
		m.reaches("keeper", "running")
		m.act("keeper", "stop")
		m.reaches("keeper", "unknown")
		Expect(m.runs("keeper")).To(BeFalse())
		Expect(m.read("keeper.calls")).To(Equal("start\nstop\n"))
	})

	It("tells that an action is pending until it is done", func() {
		m := newMachine()
		m.job("keeper")
		m.write("keeper.ctl", "#!/bin/sh\n")
		m.boot()
		m.act("keeper", "stop")
		Expect(m.service("keeper").Pending).To(Equal(3))
		m.reaches("keeper", "unknown")
	})

	It("starts a job again that was stopped", func() {
		m := newMachine()
		m.job("keeper")
		m.boot()
		m.reaches("keeper", "running")
		m.act("keeper", "stop")
		m.reaches("keeper", "unknown")
		m.act("keeper", "start")
		m.reaches("keeper", "running")
		Expect(m.runs("keeper")).To(BeTrue())
	})

	It("runs the stop program of a job that is no longer monitored", func() {
		m := newMachine()
		m.job("keeper")
		m.boot()
		m.reaches("keeper", "running")
		m.act("keeper", "unmonitor")
		m.reaches("keeper", "unknown")
		Expect(m.runs("keeper")).To(BeTrue())
		Expect(m.monit("stop", "-g", "vcap")).Error().NotTo(HaveOccurred())
		Eventually(func() bool { return m.runs("keeper") }).Should(BeFalse())
		Expect(m.read("keeper.calls")).To(Equal("start\nstop\n"))
	})

	It("starts a job again that died", func() {
		m := newMachine()
		m.job("keeper")
		m.boot()
		m.reaches("keeper", "running")
		pid, _ := strconv.Atoi(strings.TrimSpace(m.read("keeper.pid")))
		Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
		Eventually(func() string { return m.read("keeper.calls") }).Should(Equal("start\nstart\n"))
		m.reaches("keeper", "running")
	})

	It("does not start a job again that died while it was not monitored", func() {
		m := newMachine()
		m.job("keeper")
		m.job("other")
		m.boot()
		m.reaches("keeper", "running")
		m.act("keeper", "unmonitor")
		m.reaches("keeper", "unknown")
		for _, name := range []string{"keeper", "other"} {
			pid, _ := strconv.Atoi(strings.TrimSpace(m.read(name + ".pid")))
			Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
		}
		Eventually(func() string { return m.read("other.calls") }).Should(Equal("start\nstart\n"))
		Expect(m.read("keeper.calls")).To(Equal("start\n"))
	})

	It("finds that a job does not run whose pid file names no process", func() {
		m := newMachine()
		m.job("keeper")
		m.write("keeper.pid", "4194305\n") // more than the kernel's largest
		m.boot()
		m.reaches("keeper", "running")
		Expect(m.read("keeper.calls")).To(Equal("start\n"))
	})

	It("does not start a job that runs already", func() {
		m := newMachine()
		m.job("keeper")
		m.write("keeper.pid", strconv.Itoa(os.Getpid()))
		m.boot()
		m.reaches("keeper", "running")
		Expect(m.read("keeper.calls")).To(BeEmpty())
		m.write("keeper.pid", "")
	})

	It("does not wait for a start program that stays in the foreground", func() {
		m := newMachine()
		m.job("keeper")
		m.write("keeper.ctl", "#!/bin/sh\necho $$ >"+m.path("keeper.pid")+"\nexec sleep 1000\n")
		m.boot()
		m.reaches("keeper", "running")
	})

	It("gives programs a spare environment, of monit's own", func() {
		GinkgoT().Setenv("SECRET", "of the agent")
		m := newMachine()
		m.job("keeper")
		m.write("keeper.ctl", "#!/bin/sh\nenv >"+m.path("environment")+"\necho $$ >"+m.path("keeper.pid")+"\nexec sleep 1000\n")
		m.boot()
		m.reaches("keeper", "running")
		Expect(m.read("environment")).To(And(ContainSubstring("PATH=/bin:/usr/bin:/sbin:/usr/sbin\n"),
			ContainSubstring("MONIT_SERVICE=keeper\n"), Not(ContainSubstring("SECRET"))))
	})

	It("finds a job failing whose process does not come in time, and lets it be stopped", func() {
		m := newMachine()
		m.job("keeper")
		m.write("keeper.ctl", "#!/bin/sh\n")
		m.write("job/keeper.monitrc", strings.ReplaceAll(m.read("job/keeper.monitrc"), "timeout 10 seconds", "timeout 1 seconds"))
		m.boot()
		Eventually(func() int { return m.service("keeper").Status & 0x1000 }).Should(Equal(0x1000))
		m.act("keeper", "stop")
		m.reaches("keeper", "unknown")
		Expect(m.service("keeper").errored()).To(BeFalse())
	})

	It("tells of a job that does not stop in time", func() {
		m := newMachine()
		m.job("keeper")
		m.write("keeper.ctl", strings.Replace(m.read("keeper.ctl"), "kill", "true", 1))
		m.write("job/keeper.monitrc", strings.ReplaceAll(m.read("job/keeper.monitrc"), "timeout 10 seconds", "timeout 1 seconds"))
		m.boot()
		m.reaches("keeper", "running")
		m.act("keeper", "stop")
		m.reaches("keeper", "unknown")
		Expect(m.service("keeper").errored()).To(BeTrue())
		Expect(m.service("keeper").StatusMessage).To(Equal("failed to stop"))
	})

	It("needs a user that it knows", func() {
		m := newMachine()
		m.boot()
		response, err := http.Get("http://" + m.address + "/_status2?format=xml")
		Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close()
		Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
	})

	It("refuses an action with a service that it does not have, and an action that is none", func() {
		m := newMachine()
		m.job("keeper")
		m.boot()
		_, err := m.request(http.MethodPost, "/nobody", "action=start")
		Expect(err).To(MatchError(ContainSubstring("404")))
		_, err = m.request(http.MethodPost, "/keeper", "action=dance")
		Expect(err).To(MatchError(ContainSubstring("400")))
	})
})

var _ = Describe("monit on a VM without jobs", func() {
	It("has no services, and stops the group of all jobs without an error", func() {
		m := newMachine()
		m.boot()
		status, err := m.ask()
		Expect(err).NotTo(HaveOccurred())
		Expect(status.group("vcap")).To(BeEmpty())
		Expect(m.monit("stop", "-g", "vcap")).Error().NotTo(HaveOccurred())
	})
})

var _ = Describe("monit's groups", func() {
	It("are told in the order of the files, and stopped alone", func() {
		m := newMachine()
		m.job("b")
		m.job("a")
		m.job("other")
		m.write("job/other.monitrc", strings.Replace(m.read("job/other.monitrc"), "group vcap", "group infrastructure", 1))
		m.boot()
		m.reaches("other", "running")
		status, err := m.ask()
		Expect(err).NotTo(HaveOccurred())
		Expect(status.group("vcap")).To(Equal([]string{"a", "b"}))
		Expect(m.monit("stop", "-g", "vcap")).Error().NotTo(HaveOccurred())
		m.reaches("a", "unknown")
		m.reaches("b", "unknown")
		Expect(m.runs("other")).To(BeTrue())
	})
})

var _ = Describe("monit's commands", func() {
	It("summary tells of every service", func() {
		m := newMachine()
		m.job("keeper")
		m.boot()
		m.reaches("keeper", "running")
		Expect(m.monit("summary")).To(MatchRegexp(`(?m)^Process 'keeper' +running$`))
		m.act("keeper", "stop")
		m.reaches("keeper", "unknown")
		Expect(m.monit("summary")).To(MatchRegexp(`(?m)^Process 'keeper' +not monitored$`))
	})

	It("say that no daemon runs", func() {
		m := newMachine()
		for _, command := range []string{"summary", "reload"} {
			out, err := m.monit(command)
			Expect(err).To(HaveOccurred())
			Expect(out).To(ContainSubstring("the monit daemon is not running"))
		}
	})

	It("restart runs both programs of one service", func() {
		m := newMachine()
		m.job("keeper")
		m.boot()
		m.reaches("keeper", "running")
		Expect(m.monit("restart", "keeper")).Error().NotTo(HaveOccurred())
		Eventually(func() string { return m.read("keeper.calls") }).Should(Equal("start\nstop\nstart\n"))
	})

	It("quit ends the daemon, and leaves the jobs", func() {
		m := newMachine()
		m.job("keeper")
		m.boot()
		m.reaches("keeper", "running")
		Expect(m.monit("quit")).Error().NotTo(HaveOccurred())
		Eventually(m.daemon.Exited).Should(BeClosed())
		Expect(m.runs("keeper")).To(BeTrue())
	})
})
