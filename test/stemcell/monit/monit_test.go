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

var _ = Describe("monit", func() {
	It("starts a job that is not running, and reports its process", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.startMonit()
		m.waitForState("keeper", "running")
		Eventually(func() int { return m.service("keeper").Uptime }).Should(BeNumerically(">", 0))
		Expect(m.service("keeper").Memory.KilobyteTotal).To(BeNumerically(">", 0))
		Expect(m.read("keeper.calls")).To(Equal("start\n"))
	})

	It("stops a job, and no longer monitors it", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.startMonit()
		m.waitForState("keeper", "running")
		m.postAction("keeper", "stop")
		m.waitForState("keeper", "unknown")
		Expect(m.isRunning("keeper")).To(BeFalse())
		Expect(m.read("keeper.calls")).To(Equal("start\nstop\n"))
	})

	It("reports an action as pending until it is done", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.write("keeper.ctl", "#!/bin/sh\n")
		m.startMonit()
		m.postAction("keeper", "stop")
		Expect(m.service("keeper").Pending).To(Equal(3))
		m.waitForState("keeper", "unknown")
	})

	It("starts a stopped job", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.startMonit()
		m.waitForState("keeper", "running")
		m.postAction("keeper", "stop")
		m.waitForState("keeper", "unknown")
		m.postAction("keeper", "start")
		m.waitForState("keeper", "running")
		Expect(m.isRunning("keeper")).To(BeTrue())
	})

	It("runs the stop program of an unmonitored job", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.startMonit()
		m.waitForState("keeper", "running")
		m.postAction("keeper", "unmonitor")
		m.waitForState("keeper", "unknown")
		Expect(m.isRunning("keeper")).To(BeTrue())
		Expect(m.runMonit("stop", "-g", "vcap")).Error().NotTo(HaveOccurred())
		Eventually(func() bool { return m.isRunning("keeper") }).Should(BeFalse())
		Expect(m.read("keeper.calls")).To(Equal("start\nstop\n"))
	})

	It("restarts a job that died", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.startMonit()
		m.waitForState("keeper", "running")
		pid, _ := strconv.Atoi(strings.TrimSpace(m.read("keeper.pid")))
		Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
		Eventually(func() string { return m.read("keeper.calls") }).Should(Equal("start\nstart\n"))
		m.waitForState("keeper", "running")
	})

	It("does not restart a job that died while it was not monitored", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.addJob("other")
		m.startMonit()
		m.waitForState("keeper", "running")
		m.postAction("keeper", "unmonitor")
		m.waitForState("keeper", "unknown")
		for _, name := range []string{"keeper", "other"} {
			pid, _ := strconv.Atoi(strings.TrimSpace(m.read(name + ".pid")))
			Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
		}
		Eventually(func() string { return m.read("other.calls") }).Should(Equal("start\nstart\n"))
		Expect(m.read("keeper.calls")).To(Equal("start\n"))
	})

	It("starts a job if its pid file contains an unused process ID", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.write("keeper.pid", "4194305\n") // above the kernel's maximum
		m.startMonit()
		m.waitForState("keeper", "running")
		Expect(m.read("keeper.calls")).To(Equal("start\n"))
	})

	It("does not start a running job", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.write("keeper.pid", strconv.Itoa(os.Getpid()))
		m.startMonit()
		m.waitForState("keeper", "running")
		Expect(m.read("keeper.calls")).To(BeEmpty())
		m.write("keeper.pid", "")
	})

	It("does not wait for a start program that stays in the foreground", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.write("keeper.ctl", "#!/bin/sh\necho $$ >"+m.path("keeper.pid")+"\nexec sleep 1000\n")
		m.startMonit()
		m.waitForState("keeper", "running")
	})

	It("passes a minimal environment to programs", func() {
		GinkgoT().Setenv("SECRET", "of the agent")
		m := newMonitEnv()
		m.addJob("keeper")
		m.write("keeper.ctl", "#!/bin/sh\nenv >"+m.path("environment")+"\necho $$ >"+m.path("keeper.pid")+"\nexec sleep 1000\n")
		m.startMonit()
		m.waitForState("keeper", "running")
		Expect(m.read("environment")).To(And(ContainSubstring("PATH=/bin:/usr/bin:/sbin:/usr/sbin\n"),
			ContainSubstring("MONIT_SERVICE=keeper\n"), Not(ContainSubstring("SECRET"))))
	})

	It("reports a start as failed if there is no process after the timeout, and can stop the job", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.write("keeper.ctl", "#!/bin/sh\n")
		m.write("job/keeper.monitrc", strings.ReplaceAll(m.read("job/keeper.monitrc"), "timeout 10 seconds", "timeout 1 seconds"))
		m.startMonit()
		Eventually(func() int { return m.service("keeper").Status & 0x1000 }).Should(Equal(0x1000))
		m.postAction("keeper", "stop")
		m.waitForState("keeper", "unknown")
		Expect(m.service("keeper").errored()).To(BeFalse())
	})

	It("reports a job that does not stop within the timeout", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.write("keeper.ctl", strings.Replace(m.read("keeper.ctl"), "kill", "true", 1))
		m.write("job/keeper.monitrc", strings.ReplaceAll(m.read("job/keeper.monitrc"), "timeout 10 seconds", "timeout 1 seconds"))
		m.startMonit()
		m.waitForState("keeper", "running")
		m.postAction("keeper", "stop")
		m.waitForState("keeper", "unknown")
		Expect(m.service("keeper").errored()).To(BeTrue())
		Expect(m.service("keeper").StatusMessage).To(Equal("failed to stop"))
	})

	It("requires the credentials of a user", func() {
		m := newMonitEnv()
		m.startMonit()
		response, err := http.Get("http://" + m.address + "/_status2?format=xml")
		Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close()
		Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
	})

	It("rejects unknown services and actions", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.startMonit()
		_, err := m.request(http.MethodPost, "/nobody", "action=start")
		Expect(err).To(MatchError(ContainSubstring("404")))
		_, err = m.request(http.MethodPost, "/keeper", "action=dance")
		Expect(err).To(MatchError(ContainSubstring("400")))
	})
})

var _ = Describe("monit on a VM without jobs", func() {
	It("has no services, and stops the group of jobs without an error", func() {
		m := newMonitEnv()
		m.startMonit()
		status, err := m.getStatus()
		Expect(err).NotTo(HaveOccurred())
		Expect(status.group("vcap")).To(BeEmpty())
		Expect(m.runMonit("stop", "-g", "vcap")).Error().NotTo(HaveOccurred())
	})
})

var _ = Describe("monit's groups", func() {
	It("are listed in the order of the files, and stopped separately", func() {
		m := newMonitEnv()
		m.addJob("b")
		m.addJob("a")
		m.addJob("other")
		m.write("job/other.monitrc", strings.Replace(m.read("job/other.monitrc"), "group vcap", "group infrastructure", 1))
		m.startMonit()
		m.waitForState("other", "running")
		status, err := m.getStatus()
		Expect(err).NotTo(HaveOccurred())
		Expect(status.group("vcap")).To(Equal([]string{"a", "b"}))
		Expect(m.runMonit("stop", "-g", "vcap")).Error().NotTo(HaveOccurred())
		m.waitForState("a", "unknown")
		m.waitForState("b", "unknown")
		Expect(m.isRunning("other")).To(BeTrue())
	})
})

var _ = Describe("monit's commands", func() {
	It("summary lists every service", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.startMonit()
		m.waitForState("keeper", "running")
		Expect(m.runMonit("summary")).To(MatchRegexp(`(?m)^Process 'keeper' +running$`))
		m.postAction("keeper", "stop")
		m.waitForState("keeper", "unknown")
		Expect(m.runMonit("summary")).To(MatchRegexp(`(?m)^Process 'keeper' +not monitored$`))
	})

	It("report that the daemon is not running", func() {
		m := newMonitEnv()
		for _, command := range []string{"summary", "reload"} {
			out, err := m.runMonit(command)
			Expect(err).To(HaveOccurred())
			Expect(out).To(ContainSubstring("the monit daemon is not running"))
		}
	})

	It("restart runs the stop and the start program of a service", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.startMonit()
		m.waitForState("keeper", "running")
		Expect(m.runMonit("restart", "keeper")).Error().NotTo(HaveOccurred())
		Eventually(func() string { return m.read("keeper.calls") }).Should(Equal("start\nstop\nstart\n"))
	})

	It("quit stops the daemon, but not the jobs", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.startMonit()
		m.waitForState("keeper", "running")
		Expect(m.runMonit("quit")).Error().NotTo(HaveOccurred())
		Eventually(m.daemon.Exited).Should(BeClosed())
		Expect(m.isRunning("keeper")).To(BeTrue())
	})
})
