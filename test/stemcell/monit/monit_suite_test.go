package monit_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"golang.org/x/net/html/charset"
)

func TestMonit(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "monit of the test stemcell")
}

// program is the path of the built program.
var program string

var _ = BeforeSuite(func() {
	var err error
	program, err = gexec.Build("bosh-kubernetes-cpi/test/stemcell/cmd/monit")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(gexec.CleanupBuildArtifacts)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
})

// monitEnv is a directory with the control files of a BOSH VM, and a monit that uses them.
type monitEnv struct {
	dir, address string
	daemon       *gexec.Session
}

// newMonitEnv creates a monitEnv with additional lines in the control file.
func newMonitEnv(extraLines ...string) *monitEnv {
	GinkgoHelper()
	m := &monitEnv{dir: GinkgoT().TempDir(), address: freeAddress()}
	_, port, _ := net.SplitHostPort(m.address)
	Expect(os.MkdirAll(m.path("job"), 0o755)).To(Succeed())
	m.write("monit.user", "vcap:secret")
	m.write("monitrc", strings.Join(append([]string{
		"set daemon 1",
		"set logfile " + m.path("monit.log"),
		"set httpd port " + port + " and use address 127.0.0.1",
		"  allow cleartext " + m.path("monit.user"),
		"include " + m.path("*.monitrc"),
		"include " + m.path("job/*.monitrc"),
	}, extraLines...), "\n")+"\n")
	DeferCleanup(m.cleanup)
	return m
}

func freeAddress() string {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	return listener.Addr().String()
}

func (m *monitEnv) path(name string) string { return filepath.Join(m.dir, name) }

func (m *monitEnv) write(name, content string) {
	GinkgoHelper()
	Expect(os.WriteFile(m.path(name), []byte(content), 0o755)).To(Succeed())
}

func (m *monitEnv) read(name string) string {
	content, _ := os.ReadFile(m.path(name))
	return string(content)
}

// cleanup kills monit and the processes of all jobs.
func (m *monitEnv) cleanup() {
	if m.daemon != nil {
		m.daemon.Kill().Wait()
	}
	files, _ := filepath.Glob(m.path("*.pid"))
	for _, file := range files {
		content, _ := os.ReadFile(file)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
	}
	if CurrentSpecReport().Failed() {
		fmt.Fprintln(GinkgoWriter, m.read("monit.log"))
	}
}

// addJob adds a job like the jobs of releases. Its ctl script can start and stop a process, and records its calls. The lines are added
// to the job's check statement.
func (m *monitEnv) addJob(name string, lines ...string) {
	GinkgoHelper()
	m.write(name+".ctl", fmt.Sprintf(`#!/bin/sh
echo "$1" >>%[1]s.calls
case $1 in
  start)
    setsid sleep 1000 </dev/null >/dev/null 2>&1 &
    echo $! >%[1]s.pid ;;
  stop)
    kill "$(cat %[1]s.pid)" ;;
esac
`, m.path(name)))
	m.writeCheck(name, lines...)
}

// writeCheck writes the check statement of a job.
func (m *monitEnv) writeCheck(name string, lines ...string) {
	GinkgoHelper()
	ctl := m.path(name + ".ctl")
	m.write("job/"+name+".monitrc", fmt.Sprintf("check process %s\n  with pidfile %s\n  start program %q with timeout 10 seconds\n"+
		"  stop program %q with timeout 10 seconds\n  group vcap\n  %s\n",
		name, m.path(name+".pid"), ctl+" start", ctl+" stop", strings.Join(lines, "\n  ")))
}

func (m *monitEnv) command(arguments ...string) *exec.Cmd {
	return exec.Command(program, append(arguments, "-c", m.path("monitrc"), "-p", m.path("daemon"), "-s", m.path("state"))...)
}

// startMonit starts monit and waits until it responds.
func (m *monitEnv) startMonit() {
	GinkgoHelper()
	var err error
	m.daemon, err = gexec.Start(m.command("-I"), GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error { _, err := m.getStatus(); return err }).Should(Succeed())
}

// runMonit runs a monit command and returns its output.
func (m *monitEnv) runMonit(arguments ...string) (string, error) {
	out, err := m.command(arguments...).CombinedOutput()
	return string(out), err
}

// service contains the fields of a service that the BOSH agent reads (jobsupervisor/monit/status.go of bosh-agent v2.759.0).
type service struct {
	Name          string `xml:"name,attr"`
	Pending       int    `xml:"pendingaction"`
	Status        int    `xml:"status"`
	StatusMessage string `xml:"status_message"`
	Monitor       int    `xml:"monitor"`
	Uptime        int    `xml:"uptime"`
	Memory        struct {
		PercentTotal  float64 `xml:"percenttotal"`
		KilobyteTotal int     `xml:"kilobytetotal"`
	} `xml:"memory"`
	CPU struct {
		PercentTotal float64 `xml:"percenttotal"`
	} `xml:"cpu"`
}

// state returns the state that the agent derives from the fields.
func (s service) state() string {
	switch {
	case s.Monitor == 0:
		return "unknown"
	case s.Monitor == 2:
		return "starting"
	case s.Status == 0:
		return "running"
	}
	return "failing"
}

// errored reports whether the agent would stop waiting for a stop.
func (s service) errored() bool { return s.Status > 0 && s.StatusMessage != "" }

// statusResponse contains the fields of monit's status that the agent reads.
type statusResponse struct {
	XMLName     xml.Name  `xml:"monit"`
	Incarnation int       `xml:"incarnation,attr"`
	Services    []service `xml:"services>service"`
	Groups      []struct {
		Name     string   `xml:"name,attr"`
		Services []string `xml:"service"`
	} `xml:"servicegroups>servicegroup"`
}

func (r statusResponse) group(name string) []string {
	for _, group := range r.Groups {
		if group.Name == name {
			return group.Services
		}
	}
	return nil
}

// getStatus requests the status like the agent.
func (m *monitEnv) getStatus() (statusResponse, error) {
	content, err := m.request(http.MethodGet, "/_status2?format=xml", "")
	if err != nil {
		return statusResponse{}, err
	}
	decoder := xml.NewDecoder(bytes.NewReader(content))
	decoder.CharsetReader = charset.NewReaderLabel
	var status statusResponse
	err = decoder.Decode(&status)
	return status, err
}

// postAction requests an action like the agent.
func (m *monitEnv) postAction(service, action string) {
	GinkgoHelper()
	_, err := m.request(http.MethodPost, "/"+service, "action="+action)
	Expect(err).NotTo(HaveOccurred())
}

func (m *monitEnv) request(method, path, body string) ([]byte, error) {
	request, err := http.NewRequest(method, "http://"+m.address+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.SetBasicAuth("vcap", "secret")
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, content)
	}
	return content, err
}

// service returns one service of the status.
func (m *monitEnv) service(name string) service {
	GinkgoHelper()
	status, err := m.getStatus()
	Expect(err).NotTo(HaveOccurred())
	for _, s := range status.Services {
		if s.Name == name {
			return s
		}
	}
	Fail("monit does not have the service " + name)
	return service{}
}

// waitForState waits until the agent would see the service in this state without a pending action. It wakes monit to speed up its
// cycles.
func (m *monitEnv) waitForState(name, state string) {
	GinkgoHelper()
	Eventually(func() string {
		m.daemon.Signal(syscall.SIGUSR1)
		s := m.service(name)
		return fmt.Sprintf("%s, pending %d", s.state(), s.Pending)
	}).Should(Equal(state + ", pending 0"))
}

// isRunning reports whether the job's process is running and not a zombie.
func (m *monitEnv) isRunning(name string) bool {
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(m.read(name+".pid")) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
