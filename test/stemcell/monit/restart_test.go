package monit_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("monit's restarts", func() {
	// waitForNewIncarnation waits until monit's incarnation changes, like the agent.
	waitForNewIncarnation := func(m *monitEnv, incarnation int) {
		GinkgoHelper()
		Eventually(func() (int, error) { status, err := m.getStatus(); return status.Incarnation, err }).ShouldNot(Equal(incarnation))
	}
	incarnation := func(m *monitEnv) int {
		GinkgoHelper()
		status, err := m.getStatus()
		Expect(err).NotTo(HaveOccurred())
		return status.Incarnation
	}

	It("leave running jobs running and stopped jobs stopped", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.addJob("stopped")
		m.startMonit()
		m.waitForState("keeper", "running")
		m.postAction("stopped", "stop")
		m.waitForState("stopped", "unknown")
		previous, pid := incarnation(m), m.read("keeper.pid")
		// The incarnation is the start time in seconds. Like the agent with runit, retry until it changes.
		Eventually(func() int {
			m.daemon.Kill().Wait()
			m.startMonit()
			return incarnation(m)
		}).ShouldNot(Equal(previous))
		m.waitForState("keeper", "running")
		m.waitForState("stopped", "unknown")
		Expect(m.read("keeper.pid")).To(Equal(pid))
		Expect(m.isRunning("stopped")).To(BeFalse())
	})

	It("start a monitored job that is not running, as after a reboot", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.startMonit()
		m.waitForState("keeper", "running")
		m.daemon.Kill().Wait()
		Expect(os.Remove(m.path("keeper.pid"))).To(Succeed())
		m.startMonit()
		m.waitForState("keeper", "running")
		Expect(m.read("keeper.calls")).To(Equal("start\nstart\n"))
	})

	It("replace the state file atomically", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.startMonit()
		m.waitForState("keeper", "running")
		var previous string
		Eventually(func() string { previous = m.read("state"); return previous }).ShouldNot(BeEmpty())
		opened, err := os.Open(m.path("state"))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(opened.Close)
		m.postAction("keeper", "unmonitor")
		Eventually(func() string { return m.read("state") }).Should(ContainSubstring("keeper"))
		Expect(io.ReadAll(opened)).To(BeEquivalentTo(previous), "the old file is unchanged")
	})

	It("write the state file through a symbolic link", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		Expect(os.Symlink(m.path("elsewhere"), m.path("state"))).To(Succeed())
		m.startMonit()
		m.postAction("keeper", "unmonitor")
		m.waitForState("keeper", "unknown")
		Eventually(func() string { return m.read("elsewhere") }).Should(ContainSubstring("keeper"))
		Expect(os.Readlink(m.path("state"))).To(Equal(m.path("elsewhere")))
	})

	It("read the control files again on reload", func() {
		m := newMonitEnv()
		m.addJob("keeper")
		m.startMonit()
		m.postAction("keeper", "unmonitor")
		m.waitForState("keeper", "unknown")
		previous := incarnation(m)
		m.addJob("added")
		Eventually(func() int {
			Expect(m.runMonit("reload")).Error().NotTo(HaveOccurred())
			current := previous
			Eventually(func() (err error) { status, err := m.getStatus(); current = status.Incarnation; return err }).Should(Succeed())
			return current
		}).ShouldNot(Equal(previous))
		waitForNewIncarnation(m, previous)
		m.waitForState("added", "running")
		Expect(m.service("keeper").state()).To(Equal("unknown"))
	})

	It("reject a control file with an unknown statement", func() {
		m := newMonitEnv()
		m.write("job/bad.monitrc", "check process x with pidfile /x\n  flies high\n")
		out, err := m.runMonit("-I")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("syntax error 'flies'"))
	})
})

var _ = Describe("monit's dependencies", func() {
	It("start a service after its dependencies, and stop it before them", func() {
		m := newMonitEnv()
		m.addJob("base")
		m.addJob("dependent", "depends on base")
		m.write("dependent.ctl", strings.Replace(m.read("dependent.ctl"), "\ncase", "\ncp "+m.path("base.calls")+" "+m.path("calls")+".$1\ncase", 1))
		m.startMonit()
		m.waitForState("dependent", "running")
		m.postAction("base", "stop")
		m.waitForState("base", "unknown")
		m.waitForState("dependent", "unknown")
		Expect(m.read("calls.start")).To(Equal("start\n"))
		Expect(m.read("calls.stop")).To(Equal("start\n"))
	})
})

var _ = Describe("monit's alerts", func() {
	It("are mails in the format that the agent parses", func() {
		address, mails := mailServer()
		host, port, _ := net.SplitHostPort(address)
		m := newMonitEnv("set alert agent@local", "set mailserver "+host+" port "+port+" with timeout 15 seconds",
			"set eventqueue basedir /var/vcap/monit/events slots 5000", `set mail-format {
  from: monit@localhost
  subject: Monit Alert
  message: Service: $SERVICE
  Event: $EVENT
  Action: $ACTION
  Date: $DATE
  Description: $DESCRIPTION
}`)
		m.addJob("keeper")
		m.startMonit()
		m.waitForState("keeper", "running")
		var mail string
		Eventually(mails).Should(Receive(&mail, ContainSubstring("does not exist")))
		// The lines that the agent's jobsupervisor/alert_envelope.go parses.
		Expect(mail).To(And(MatchRegexp(`(?m)^Message-id: <[^>]+>$`), ContainSubstring("\nService: keeper\n"),
			ContainSubstring("\nEvent: does not exist\nAction: restart\nDate: "), ContainSubstring("\nDescription: process is not running\n")))
	})
})

// mailServer starts a mail server like the agent's on port 2825.
func mailServer() (address string, mails chan string) {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(listener.Close)
	mails = make(chan string, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			receiveMail(conn, mails)
		}
	}()
	return listener.Addr().String(), mails
}

func receiveMail(conn net.Conn, mails chan<- string) {
	defer conn.Close()
	fmt.Fprint(conn, "220 agent\r\n")
	var mail strings.Builder
	inData := false
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		switch line := lines.Text(); {
		case inData && line == ".":
			inData = false
			mails <- mail.String()
			fmt.Fprint(conn, "250 OK\r\n")
		case inData:
			mail.WriteString(line + "\n")
		case line == "DATA":
			inData = true
			fmt.Fprint(conn, "354 send the mail\r\n")
		default:
			fmt.Fprint(conn, "250 OK\r\n")
		}
	}
}
