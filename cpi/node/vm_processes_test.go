package node_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// vmProcess is a process of a VM. It records the signals that it receives, and is in the fake /proc while it runs.
type vmProcess struct {
	root fakeRoot
	pid  int
}

// startVMProcess starts a process that exits on the signals in exitOn. pids are its process IDs in the VM's PID namespace and in nested
// namespaces.
func (f fakeRoot) startVMProcess(name, pids, exitOn string) vmProcess {
	GinkgoHelper()
	process := exec.Command("env", withDefaultSignals([]string{"/bin/bash", "-c", `
		name=$0 signals=$1 proc=$2 exit_on=$3
		handle() {
			echo "$name $1" >>"$signals"
			[[ $exit_on != *"$1"* ]] || { rm -r "$proc/$$"; exit; }
		}
		for signal in TERM HUP INT RTMIN+3 RTMIN+5; do trap "handle $signal" "$signal"; done
		exec {pause_fd}<> <(:)
		until [[ -e $proc/$$/cgroup ]]; do read -r -t 0.01 -u "$pause_fd"; done
		echo
		while :; do read -r -t 0.1 -u "$pause_fd"; done`,
		name, filepath.Join(f.state, "signals"), f.path("proc"), exitOn})...)
	ready, err := process.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(process.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	p := vmProcess{f, process.Process.Pid}
	f.addProcess(p.pid, 1, name, inVMA)
	f.write(p.file("status"), fmt.Sprintf("PPid:\t1\nNSpid:\t%d\t%s\n", p.pid, pids))
	f.write(p.file("cmdline"), "program\x00")
	Expect(os.Symlink("pid:["+strings.Fields(pids)[0]+"]", f.path(p.file("ns/pid")))).To(Succeed())
	f.write(p.file("cgroup"), "0::/kubepods/c0ffee\n")
	_, err = ready.Read(make([]byte, 1))
	Expect(err).NotTo(HaveOccurred())
	return p
}

// file returns the path of a file of the process in the fake /proc.
func (p vmProcess) file(name string) string { return fmt.Sprintf("proc/%d/%s", p.pid, name) }

// shareNamespace moves processes into the VM's PID namespace.
func (f fakeRoot) shareNamespace(processes ...vmProcess) {
	GinkgoHelper()
	for _, process := range processes {
		link := f.path(process.file("ns/pid"))
		Expect(os.Remove(link)).To(Succeed())
		Expect(os.Symlink("pid:[vm]", link)).To(Succeed())
	}
}

// setParent sets the parent of the process.
func (p vmProcess) setParent(parent vmProcess) {
	GinkgoHelper()
	status := strings.Replace(p.root.read(p.file("status")), "PPid:\t1\n", fmt.Sprintf("PPid:\t%d\n", parent.pid), 1)
	p.root.write(p.file("status"), status)
}

// signals returns the signals that the processes received, in order, as "NAME SIGNAL".
func (f fakeRoot) signals() []string {
	content, _ := os.ReadFile(filepath.Join(f.state, "signals"))
	return strings.Split(string(bytes.TrimSpace(content)), "\n")
}

// wasKilled waits until the process exits, and reports whether it was killed.
func (p vmProcess) wasKilled() bool {
	var status syscall.WaitStatus
	_, err := syscall.Wait4(p.pid, &status, 0, nil)
	return err == nil && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// isStopped reports whether the process is suspended by SIGSTOP.
func (p vmProcess) isStopped() bool {
	GinkgoHelper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	Expect(err).NotTo(HaveOccurred())
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "T")
}
