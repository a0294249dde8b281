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

// programTimeout is how long a program may take for what takes it a moment.
const programTimeout = 20 * time.Second

// fakeRoot is a folder that the programs take for the filesystem's root, with stand-ins for all that needs root:
// see testdata/stand-in.
type fakeRoot struct {
	root  string
	state string // what the stand-ins know
	bin   string // the stand-ins, before all else in PATH
}

// standIns are the programs that are stood in for. The others are the machine's own.
var standIns = strings.Fields(`blkdiscard blkid blockdev cmp cp dd df dumpe2fs e2fsck fallocate losetup mkfs.ext4 mkfs.xfs mknod mount
	mountpoint resize2fs stat sv sync umount unshare update-ca-certificates xfs_admin xfs_db xfs_growfs`)

func newFakeRoot() fakeRoot {
	GinkgoHelper()
	folder, err := filepath.EvalSymlinks(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	w := fakeRoot{filepath.Join(folder, "root"), filepath.Join(folder, "known"), filepath.Join(folder, "bin")}
	for _, each := range []string{"dev", "devices", "volume", "mnt", "tmp", "sys/block", "proc/self"} {
		w.mkdir(each)
	}
	w.write("proc/self/mountinfo", "")
	w.write("proc/self/mounts", "")
	w.write("proc/self/cgroup", "4:memory:/kubepods/c0ffee\n")
	for _, each := range []string{"disks", "files", "busy", "exit"} {
		Expect(os.MkdirAll(filepath.Join(w.state, each), 0o755)).To(Succeed())
	}
	w.setState("mounts", "")
	w.setState("log", "")
	w.setState("room", "1000000")
	Expect(syscall.Mkfifo(filepath.Join(w.state, "go"), 0o600)).To(Succeed())
	Expect(os.Mkdir(w.bin, 0o755)).To(Succeed())
	for _, each := range standIns {
		Expect(os.Symlink(testdata("stand-in"), filepath.Join(w.bin, each))).To(Succeed())
	}
	return w
}

func testdata(name string) string {
	GinkgoHelper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	Expect(err).NotTo(HaveOccurred())
	return path
}

func (w fakeRoot) path(name string) string { return filepath.Join(w.root, name) }

func (w fakeRoot) mkdir(name string) {
	GinkgoHelper()
	Expect(os.MkdirAll(w.path(name), 0o755)).To(Succeed())
}

func (w fakeRoot) write(name, content string) {
	GinkgoHelper()
	w.mkdir(filepath.Dir(name))
	Expect(os.WriteFile(w.path(name), []byte(content), 0o755)).To(Succeed())
}

func (w fakeRoot) read(name string) string {
	GinkgoHelper()
	content, err := os.ReadFile(w.path(name))
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

func (w fakeRoot) remove(name string) {
	GinkgoHelper()
	Expect(os.RemoveAll(w.path(name))).To(Succeed())
}

func (w fakeRoot) exists(name string) bool {
	_, err := os.Lstat(w.path(name))
	return err == nil
}

// setState tells the stand-ins something.
func (w fakeRoot) setState(name, content string) {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(w.state, name), []byte(content), 0o600)).To(Succeed())
}

func (w fakeRoot) hasState(name string) bool {
	_, err := os.Stat(filepath.Join(w.state, name))
	return err == nil
}

// readState returns the content of a file of what the stand-ins know.
func (w fakeRoot) readState(name string) string {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(w.state, name))
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

func (w fakeRoot) clearState(name string) {
	GinkgoHelper()
	Expect(os.Remove(filepath.Join(w.state, name))).To(Succeed())
}

// addDevice makes a device's node, and, with a size, the disk: content is what it begins with.
func (w fakeRoot) addDevice(name string, major, minor int, bytes int64, content string) {
	GinkgoHelper()
	w.write(name, fmt.Sprintf("b %d %d\n", major, minor))
	if bytes > 0 {
		disk := fmt.Sprintf("disks/%d:%d", major, minor)
		w.setState(disk, content)
		Expect(os.Truncate(filepath.Join(w.state, disk), bytes)).To(Succeed())
	}
}

// readFilesystem returns what the disk's filesystem says of itself: TYPE UUID BYTES.
func (w fakeRoot) readFilesystem(numbers string) string {
	GinkgoHelper()
	return firstLine(filepath.Join(w.state, "disks", numbers))
}

func firstLine(path string) string {
	GinkgoHelper()
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	line, _, _ := bytes.Cut(bytes.TrimRight(content, "\x00"), []byte("\n"))
	return string(line)
}

// filesOf gives the filesystem in a file, an image or a disk, a folder with its files, and returns that.
func (w fakeRoot) filesOf(file string) string {
	GinkgoHelper()
	var stat syscall.Stat_t
	Expect(syscall.Stat(file, &stat)).To(Succeed())
	folder := filepath.Join(w.state, "files", strconv.FormatUint(stat.Ino, 10))
	Expect(os.MkdirAll(folder, 0o755)).To(Succeed())
	return folder
}

// calls are those of the stand-ins so far.
func (w fakeRoot) calls() []string {
	GinkgoHelper()
	log, err := os.ReadFile(filepath.Join(w.state, "log"))
	Expect(err).NotTo(HaveOccurred())
	return strings.Split(strings.TrimSuffix(string(log), "\n"), "\n")
}

// loops are the loop devices that are in use.
func (w fakeRoot) loops() []string {
	GinkgoHelper()
	loops, err := filepath.Glob(filepath.Join(w.state, "disks", "7:*"))
	Expect(err).NotTo(HaveOccurred())
	return loops
}

// startedProgram is a program under test.
type startedProgram struct {
	root   fakeRoot
	cmd    *exec.Cmd
	out    *bytes.Buffer // what it says
	exited chan struct{}
	err    error // once it has ended
}

// asInContainer are arguments for env(1) that run a command with all signals as they are in a container, though
// these tests may run where some are ignored: under nohup, or in the background.
func asInContainer(command []string) []string {
	return append([]string{"--default-signal"}, command...)
}

// start starts a command as its container does.
func (w fakeRoot) start(command []string, env ...string) *startedProgram {
	GinkgoHelper()
	r := &startedProgram{root: w, cmd: exec.Command("env", asInContainer(command)...), out: &bytes.Buffer{}, exited: make(chan struct{})}
	r.cmd.Env = append([]string{
		"PATH=" + w.bin + ":" + os.Getenv("PATH"), "BOSH_NODE_ROOT=" + w.root, "STAND_INS=" + w.state,
		"PERL5LIB=" + testdata("."), "PERL5OPT=-MStandIn", "LC_ALL=C",
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

// startPausedAt starts a command that stops before the stand-ins' call of this number does anything, and calls then
// before it goes on.
func (w fakeRoot) startPausedAt(call int, command, env []string, whilePaused func(*startedProgram)) *startedProgram {
	GinkgoHelper()
	w.setState("stop", strconv.Itoa(call))
	r := w.start(command, env...)
	r.waitUntil(func() bool { return w.hasState("stopped") })
	whilePaused(r)
	w.clearState("stop")
	select {
	case <-r.exited:
		return r
	default:
	}
	goOn, err := os.OpenFile(filepath.Join(w.state, "go"), os.O_WRONLY, 0)
	Expect(err).NotTo(HaveOccurred())
	Expect(goOn.Close()).To(Succeed())
	return r
}

// run starts a command and waits until it has ended.
func (w fakeRoot) run(command []string, env ...string) (status int, output string) {
	GinkgoHelper()
	r := w.start(command, env...)
	return r.wait(), r.out.String()
}

// wait waits until the program has ended, and returns its status.
func (r *startedProgram) wait() int {
	GinkgoHelper()
	Eventually(r.exited).WithTimeout(programTimeout).Should(BeClosed(), r.summary)
	if exit, ok := errors.AsType[*exec.ExitError](r.err); ok {
		return exit.ExitCode()
	}
	Expect(r.err).NotTo(HaveOccurred())
	return 0
}

// summary is what has happened so far.
func (r *startedProgram) summary() string {
	return fmt.Sprintf("calls: %q, said: %s", r.root.calls(), r.out)
}

func (r *startedProgram) signal(signal syscall.Signal) {
	GinkgoHelper()
	Expect(r.cmd.Process.Signal(signal)).To(Succeed())
}

// kill kills the program and what it has started, as a container ends, and waits until that is so.
func (r *startedProgram) kill() {
	GinkgoHelper()
	Expect(syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)).To(Succeed())
	Eventually(r.exited).WithTimeout(programTimeout).Should(BeClosed(), r.summary)
}

// waitUntil waits for the condition; it fails when the program ends before.
func (r *startedProgram) waitUntil(condition func() bool) {
	GinkgoHelper()
	Eventually(func() bool {
		select {
		case <-r.exited:
			Fail("it has ended: " + r.out.String())
		default:
		}
		return condition()
	}).WithTimeout(programTimeout).WithPolling(time.Millisecond).Should(BeTrue(), r.summary)
}

// callFunction calls a function of the libraries, and returns its status and what it says.
func (w fakeRoot) callFunction(libraries, function string, env ...string) (status int, output string) {
	GinkgoHelper()
	script := ". lib/shell.sh\n"
	for library := range strings.FieldsSeq(libraries) {
		script += ". lib/" + library + ".sh\n"
	}
	return w.run([]string{"/bin/bash", "-c", script + function}, env...)
}
