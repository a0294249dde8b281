package node_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// programTimeout limits how long a program may take for a step, which normally takes milliseconds.
const programTimeout = 20 * time.Second

// fakeRoot is a directory that the programs use as /, with fakes for all programs that need root: see testdata/fake-program.
type fakeRoot struct {
	root  string
	state string // the fakes' state; see testdata/fake-program
	bin   string // the fakes, first in PATH except for killer
	// killer is the directory of programs that killProgram may kill. It does not exist before the first call of killProgram.
	killer string
}

// fakePrograms are the programs that testdata/fake-program replaces. All others are the host's.
var fakePrograms = strings.Fields(`blkdiscard blkid blockdev cmp cp dd df dumpe2fs e2fsck fallocate losetup mkfs.ext4 mkfs.xfs mknod mount
	mountpoint resize2fs stat sv sync umount unshare update-ca-certificates xfs_admin xfs_db xfs_growfs`)

func newFakeRoot() fakeRoot {
	GinkgoHelper()
	directory, err := filepath.EvalSymlinks(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	f := fakeRoot{filepath.Join(directory, "root"), filepath.Join(directory, "state"), filepath.Join(directory, "bin"), filepath.Join(directory, "killer")}
	for _, name := range []string{"dev", "devices", "volume", "mnt", "tmp", "sys/block", "proc/self"} {
		f.mkdir(name)
	}
	f.write("proc/self/mountinfo", "")
	f.write("proc/self/mounts", "")
	f.write("proc/self/cgroup", "4:memory:/kubepods/c0ffee\n")
	for _, name := range []string{"disks", "busy", "exit"} {
		Expect(os.MkdirAll(filepath.Join(f.state, name), 0o755)).To(Succeed())
	}
	f.setState("mounts", "")
	f.setState("log", "")
	f.setState("volume-free-mib", "1000000")
	Expect(syscall.Mkfifo(filepath.Join(f.state, "resume"), 0o600)).To(Succeed())
	Expect(os.Mkdir(f.bin, 0o755)).To(Succeed())
	for _, program := range fakePrograms {
		Expect(os.Symlink(testdata("fake-program"), filepath.Join(f.bin, program))).To(Succeed())
	}
	return f
}

func testdata(name string) string {
	GinkgoHelper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	Expect(err).NotTo(HaveOccurred())
	return path
}

func (f fakeRoot) path(name string) string { return filepath.Join(f.root, name) }

func (f fakeRoot) mkdir(name string) {
	GinkgoHelper()
	Expect(os.MkdirAll(f.path(name), 0o755)).To(Succeed())
}

func (f fakeRoot) write(name, content string) {
	GinkgoHelper()
	f.mkdir(filepath.Dir(name))
	Expect(os.WriteFile(f.path(name), []byte(content), 0o755)).To(Succeed())
}

func (f fakeRoot) read(name string) string {
	GinkgoHelper()
	content, err := os.ReadFile(f.path(name))
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

func (f fakeRoot) remove(name string) {
	GinkgoHelper()
	Expect(os.RemoveAll(f.path(name))).To(Succeed())
}

func (f fakeRoot) exists(name string) bool {
	_, err := os.Lstat(f.path(name))
	return err == nil
}

// addProgram adds a program, with this Bash script, for commands that start after this.
func (f fakeRoot) addProgram(name, script string) {
	GinkgoHelper()
	path := filepath.Join(f.bin, name)
	Expect(os.WriteFile(path, []byte("#!/bin/bash\n"+script), 0o600)).To(Succeed())
	Expect(os.Chmod(path, 0o700)).To(Succeed())
}

// setState writes a file of the fakes' state.
func (f fakeRoot) setState(name, content string) {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(f.state, name), []byte(content), 0o600)).To(Succeed())
}

func (f fakeRoot) hasState(name string) bool {
	_, err := os.Stat(filepath.Join(f.state, name))
	return err == nil
}

// readState returns the content of a file of the fakes' state.
func (f fakeRoot) readState(name string) string {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(f.state, name))
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

func (f fakeRoot) clearState(name string) {
	GinkgoHelper()
	Expect(os.Remove(filepath.Join(f.state, name))).To(Succeed())
}

// addDevice creates a device node. If bytes is not 0, it also creates a disk of this size that begins with content.
func (f fakeRoot) addDevice(name string, major, minor int, bytes int64, content string) {
	GinkgoHelper()
	f.write(name, fmt.Sprintf("b %d %d\n", major, minor))
	if bytes > 0 {
		disk := fmt.Sprintf("disks/%d:%d", major, minor)
		f.setState(disk, content)
		Expect(os.Truncate(filepath.Join(f.state, disk), bytes)).To(Succeed())
	}
}

// readFilesystem returns the filesystem of the disk with these device numbers: TYPE UUID BYTES.
func (f fakeRoot) readFilesystem(numbers string) string {
	GinkgoHelper()
	return firstLine(filepath.Join(f.state, "disks", numbers))
}

func firstLine(path string) string {
	GinkgoHelper()
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	line, _, _ := bytes.Cut(bytes.TrimRight(content, "\x00"), []byte("\n"))
	return string(line)
}

// calls returns the calls of the fakes so far.
func (f fakeRoot) calls() []string {
	GinkgoHelper()
	log, err := os.ReadFile(filepath.Join(f.state, "log"))
	Expect(err).NotTo(HaveOccurred())
	return strings.Split(strings.TrimSuffix(string(log), "\n"), "\n")
}

// loops returns the used loop devices.
func (f fakeRoot) loops() []string {
	GinkgoHelper()
	loops, err := filepath.Glob(filepath.Join(f.state, "disks", "7:*"))
	Expect(err).NotTo(HaveOccurred())
	return loops
}

// startedProgram is a started program under test.
type startedProgram struct {
	root   fakeRoot
	cmd    *exec.Cmd
	out    *bytes.Buffer // stdout and stderr
	exited chan struct{}
	err    error // the result of Wait; valid after exited is closed
}

// withDefaultSignals returns arguments for env(1) that run the command with default signal handling, as in a container. The tests may run
// with ignored signals, for example under nohup.
func withDefaultSignals(command []string) []string {
	return append([]string{"--default-signal"}, command...)
}

// start starts the command like a container.
func (f fakeRoot) start(command []string, env ...string) *startedProgram {
	GinkgoHelper()
	path := f.bin + ":" + os.Getenv("PATH")
	if _, err := os.Stat(f.killer); err == nil {
		path = f.killer + ":" + path
	}
	r := &startedProgram{root: f, cmd: exec.Command("env", withDefaultSignals(command)...), out: &bytes.Buffer{}, exited: make(chan struct{})}
	r.cmd.Env = append([]string{
		"PATH=" + path, "BOSH_NODE_ROOT=" + f.root, "FAKE_STATE=" + f.state,
		"PERL5LIB=" + testdata("."), "PERL5OPT=-MFakeDevices", "LC_ALL=C",
	}, env...)
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.out
	r.cmd.WaitDelay = programTimeout
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	Expect(r.cmd.Start()).To(Succeed())
	go func() {
		defer close(r.exited)
		r.err = r.cmd.Wait()
	}()
	DeferCleanup(func() {
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
		<-r.exited
	})
	return r
}

// startPausedAt starts the command, pauses it before the call with this number takes effect, calls whilePaused, and resumes the command.
func (f fakeRoot) startPausedAt(call int, command, env []string, whilePaused func(*startedProgram)) *startedProgram {
	GinkgoHelper()
	f.setState("pause-at", strconv.Itoa(call))
	r := f.start(command, env...)
	r.resumeAfter(whilePaused)
	return r
}

// resumeAfter waits until the program is paused, calls whilePaused, and resumes the program.
func (r *startedProgram) resumeAfter(whilePaused func(*startedProgram)) {
	GinkgoHelper()
	r.waitUntil(func() bool { return r.root.hasState("paused") })
	whilePaused(r)
	r.root.clearState("pause-at")
	select {
	case <-r.exited:
		return
	default:
	}
	resume, err := os.OpenFile(filepath.Join(r.root.state, "resume"), os.O_WRONLY, 0)
	Expect(err).NotTo(HaveOccurred())
	Expect(resume.Close()).To(Succeed())
}

// run runs the command.
func (f fakeRoot) run(command []string, env ...string) (status int, output string) {
	GinkgoHelper()
	r := f.start(command, env...)
	return r.wait(), r.out.String()
}

// wait waits until the program exits, and returns its exit status.
func (r *startedProgram) wait() int {
	GinkgoHelper()
	Eventually(r.exited).WithTimeout(programTimeout).Should(BeClosed(), r.summary)
	if exit, ok := errors.AsType[*exec.ExitError](r.err); ok {
		return exit.ExitCode()
	}
	Expect(r.err).NotTo(HaveOccurred())
	return 0
}

// summary returns the calls and the output so far.
func (r *startedProgram) summary() string {
	return fmt.Sprintf("calls: %q, output: %s", r.root.calls(), r.out)
}

func (r *startedProgram) signal(signal syscall.Signal) {
	GinkgoHelper()
	Expect(r.cmd.Process.Signal(signal)).To(Succeed())
}

// kill kills the program and its child processes, as if its container was killed, and waits until the program exits.
func (r *startedProgram) kill() {
	GinkgoHelper()
	Expect(syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)).To(Succeed())
	Eventually(r.exited).WithTimeout(programTimeout).Should(BeClosed(), r.summary)
}

// waitUntil waits for the condition. It fails if the program exits first.
func (r *startedProgram) waitUntil(condition func() bool) {
	GinkgoHelper()
	Eventually(func() bool {
		select {
		case <-r.exited:
			Fail("the program exited: " + r.out.String())
		default:
		}
		return condition()
	}).WithTimeout(programTimeout).WithPolling(time.Millisecond).Should(BeTrue(), r.summary)
}

// waitUntilOrExit waits for the condition, or until the program exits.
func (r *startedProgram) waitUntilOrExit(condition func() bool) {
	GinkgoHelper()
	Eventually(func() bool {
		select {
		case <-r.exited:
			return true
		default:
			return condition()
		}
	}).WithTimeout(programTimeout).WithPolling(time.Millisecond).Should(BeTrue(), r.summary)
}

// callFunction calls a function of the libraries.
func (f fakeRoot) callFunction(libraries, function string, env ...string) (status int, output string) {
	GinkgoHelper()
	script := ". lib/shell.sh\n"
	for library := range strings.FieldsSeq(libraries) {
		script += ". lib/" + library + ".sh\n"
	}
	return f.run([]string{"/bin/bash", "-c", script + function}, env...)
}

// killedPrograms are programs that answer questions, or that mount.
var killedPrograms = strings.Fields(`awk blkid blockdev cat cmp dd du find grep losetup ls mktemp mount mountpoint perl readlink sort stat tail tr
	umount unshare update-ca-certificates`)

// killProgram kills one of killedPrograms, with this number counted from now on, instead of starting it, as the kernel does without memory.
func (f fakeRoot) killProgram(number int) {
	GinkgoHelper()
	Expect(os.RemoveAll(f.killer)).To(Succeed())
	Expect(os.RemoveAll(filepath.Join(f.state, "started"))).To(Succeed())
	Expect(os.RemoveAll(filepath.Join(f.state, "killed"))).To(Succeed())
	f.setState("kill", strconv.Itoa(number))
	for _, directory := range []string{f.killer, filepath.Join(f.state, "started")} {
		Expect(os.Mkdir(directory, 0o755)).To(Succeed())
	}
	for _, program := range killedPrograms {
		Expect(os.Symlink(testdata("killer"), filepath.Join(f.killer, program))).To(Succeed())
	}
}

// countPrograms returns the number of killedPrograms that started since the call of killProgram.
func (f fakeRoot) countPrograms() int {
	GinkgoHelper()
	started, err := os.ReadDir(filepath.Join(f.state, "started"))
	Expect(err).NotTo(HaveOccurred())
	return len(started)
}

// forEachProgram calls run with a growing number for killProgram, until run starts less programs.
func forEachProgram(run func(number int) fakeRoot) {
	GinkgoHelper()
	for number := 1; ; number++ {
		root := run(number)
		if !root.hasState("killed") {
			Expect(number).To(BeNumerically(">", 2), "the number of programs")
			return
		}
	}
}
