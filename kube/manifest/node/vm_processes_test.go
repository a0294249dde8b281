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

// vmProcess is a process of a machine. It writes down which signals it gets, and is in the pretended /proc for as
// long as it lives.
type vmProcess struct {
	root fakeRoot
	pid  int
}

// startVMProcess starts an inhabitant that ends on the signals of the last argument. pids are its numbers from the machine's
// PID namespace inwards.
func (w fakeRoot) startVMProcess(name, pids, endsOn string) vmProcess {
	GinkgoHelper()
	process := exec.Command("env", asInContainer([]string{"/bin/bash", "-c", `
		name=$0 signals=$1 proc=$2 ends_on=$3
		told() {
			echo "$name $1" >>"$signals"
			[[ $ends_on != *"$1"* ]] || { rm -r "$proc/$$"; exit; }
		}
		for signal in TERM HUP INT RTMIN+3 RTMIN+5; do trap "told $signal" "$signal"; done
		exec {quiet}<> <(:)
		until [[ -e $proc/$$/cgroup ]]; do read -r -t 0.01 -u "$quiet"; done
		echo
		while :; do read -r -t 0.1 -u "$quiet"; done`,
		name, filepath.Join(w.state, "signals"), w.path("proc"), endsOn})...)
	ready, err := process.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(process.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	i := vmProcess{w, process.Process.Pid}
	w.addProcess(i.pid, 1, name, inVMA)
	w.write(i.file("status"), fmt.Sprintf("PPid:\t1\nNSpid:\t%d\t%s\n", i.pid, pids))
	w.write(i.file("cmdline"), "program\x00")
	Expect(os.Symlink("pid:["+strings.Fields(pids)[0]+"]", w.path(i.file("ns/pid")))).To(Succeed())
	w.write(i.file("cgroup"), "0::/kubepods/c0ffee\n")
	_, err = ready.Read(make([]byte, 1))
	Expect(err).NotTo(HaveOccurred())
	return i
}

// file is the name of one of the inhabitant's files in the pretended /proc.
func (i vmProcess) file(name string) string { return fmt.Sprintf("proc/%d/%s", i.pid, name) }

// shareNamespace puts inhabitants into the PID namespace of the machine.
func (w fakeRoot) shareNamespace(processes ...vmProcess) {
	GinkgoHelper()
	for _, process := range processes {
		link := w.path(process.file("ns/pid"))
		Expect(os.Remove(link)).To(Succeed())
		Expect(os.Symlink("pid:[machine]", link)).To(Succeed())
	}
}

// setParent says which inhabitant has started this one.
func (i vmProcess) setParent(parent vmProcess) {
	GinkgoHelper()
	status := strings.Replace(i.root.read(i.file("status")), "PPid:\t1\n", fmt.Sprintf("PPid:\t%d\n", parent.pid), 1)
	i.root.write(i.file("status"), status)
}

// signals are those that the inhabitants got, in their order.
func (w fakeRoot) signals() []string {
	content, _ := os.ReadFile(filepath.Join(w.state, "signals"))
	return strings.Split(string(bytes.TrimSpace(content)), "\n")
}

// wasKilled reports whether an inhabitant was killed.
func (i vmProcess) wasKilled() bool {
	var status syscall.WaitStatus
	_, err := syscall.Wait4(i.pid, &status, 0, nil)
	return err == nil && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// isStopped reports whether an inhabitant is stopped, as by SIGSTOP.
func (i vmProcess) isStopped() bool {
	GinkgoHelper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", i.pid))
	Expect(err).NotTo(HaveOccurred())
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "T")
}
