//go:build linux

package shutdown_test

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "bosh-kubernetes-cpi/test/harness/processtest"
)

func TestShutdown(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	slog.SetDefault(slog.New(slog.NewTextHandler(GinkgoWriter, nil)))
	RunSpecs(t, "shutdown")
}

const (
	vm        = "bosh/agent-a"
	container = "c0ffee"
	// short is a timeout for processes that do not exit, and long one that does not pass.
	short, long = 10 * time.Millisecond, time.Hour
)

// runningProcess is a real process with an entry in a fake /proc, which disappears when the process exits.
type runningProcess struct {
	root   Root
	id     int
	exited chan struct{}
	status syscall.WaitStatus // after exited is closed
}

// start starts a process that exits after any signal. ids are its process IDs in the VM's PID namespace and in nested ones.
func start(root Root, name string, ids ...int) *runningProcess {
	GinkgoHelper()
	return startCommand(root, name, ids, "sleep", "infinity")
}

// startStubborn starts a process that ignores SIGTERM.
func startStubborn(root Root, name string, ids ...int) *runningProcess {
	GinkgoHelper()
	return startCommand(root, name, ids, "env", "--ignore-signal=TERM", "sleep", "infinity")
}

func startCommand(root Root, name string, ids []int, command ...string) *runningProcess {
	GinkgoHelper()
	program := exec.Command(command[0], command[1:]...)
	Expect(program.Start()).To(Succeed())
	p := &runningProcess{root: root, id: program.Process.Pid, exited: make(chan struct{})}
	namespace := "vm"
	if len(ids) > 1 {
		namespace = "nested"
	}
	root.Add(Process{ID: p.id, Name: name, InnerIDs: ids, Namespace: namespace, Mounts: []string{InVM(vm)}})
	root.Write(p.file("cgroup"), "0::/kubepods/"+container+"\n")
	var reaped sync.WaitGroup
	reaped.Go(func() {
		defer GinkgoRecover()
		_ = program.Wait()
		p.status, _ = program.ProcessState.Sys().(syscall.WaitStatus)
		root.Remove(fmt.Sprintf("proc/%d", p.id))
		close(p.exited)
	})
	DeferCleanup(func() {
		_ = program.Process.Kill()
		reaped.Wait()
	})
	Eventually(func() ([]byte, error) { return os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.id)) }).Should(BeEquivalentTo("sleep\n"))
	return p
}

func (p *runningProcess) file(name string) string { return fmt.Sprintf("proc/%d/%s", p.id, name) }

// setParent sets the parent of the process.
func (p *runningProcess) setParent(parent *runningProcess) {
	GinkgoHelper()
	status, err := os.ReadFile(p.root.Path(p.file("status")))
	Expect(err).NotTo(HaveOccurred())
	p.root.Write(p.file("status"), strings.Replace(string(status), "PPid:\t0\n", fmt.Sprintf("PPid:\t%d\n", parent.id), 1))
}

// endedBy waits until the process exits, and returns the signal that ended it.
func (p *runningProcess) endedBy() syscall.Signal {
	GinkgoHelper()
	Eventually(p.exited).Should(BeClosed())
	return p.status.Signal()
}

func (p *runningProcess) isRunning() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// isStopped reports whether the process is suspended by SIGSTOP.
func (p *runningProcess) isStopped() bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.id))
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "T")
}

// background runs a function, and returns a channel with its result.
func background(run func() error) <-chan error {
	result := make(chan error, 1)
	go func() {
		defer GinkgoRecover()
		result <- run()
	}()
	return result
}
