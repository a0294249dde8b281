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

// patience is how long a program may take for what takes it a moment.
const patience = 20 * time.Second

// world is a folder that the programs take for the filesystem's root, with stand-ins for all that needs root:
// see testdata/stand-in.
type world struct {
	root  string
	known string // what the stand-ins know
	bin   string // the stand-ins, before all else in PATH
}

// standIns are the programs that are stood in for. The others are the machine's own.
var standIns = strings.Fields(`blkdiscard blkid blockdev cmp cp dd df dumpe2fs e2fsck fallocate losetup mkfs.ext4 mkfs.xfs mknod mount
	mountpoint resize2fs stat sv sync umount unshare update-ca-certificates xfs_admin xfs_db xfs_growfs`)

func newWorld() world {
	GinkgoHelper()
	folder, err := filepath.EvalSymlinks(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	w := world{filepath.Join(folder, "root"), filepath.Join(folder, "known"), filepath.Join(folder, "bin")}
	for _, each := range []string{"dev", "devices", "volume", "mnt", "tmp", "sys/block", "proc/self"} {
		w.folder(each)
	}
	w.write("proc/self/mountinfo", "")
	w.write("proc/self/mounts", "")
	w.write("proc/self/cgroup", "4:memory:/kubepods/c0ffee\n")
	for _, each := range []string{"disks", "files", "busy", "exit"} {
		Expect(os.MkdirAll(filepath.Join(w.known, each), 0o755)).To(Succeed())
	}
	w.know("mounts", "")
	w.know("log", "")
	w.know("room", "1000000")
	Expect(syscall.Mkfifo(filepath.Join(w.known, "go"), 0o600)).To(Succeed())
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

func (w world) path(name string) string { return filepath.Join(w.root, name) }

func (w world) folder(name string) {
	GinkgoHelper()
	Expect(os.MkdirAll(w.path(name), 0o755)).To(Succeed())
}

func (w world) write(name, content string) {
	GinkgoHelper()
	w.folder(filepath.Dir(name))
	Expect(os.WriteFile(w.path(name), []byte(content), 0o755)).To(Succeed())
}

func (w world) read(name string) string {
	GinkgoHelper()
	content, err := os.ReadFile(w.path(name))
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

func (w world) remove(name string) {
	GinkgoHelper()
	Expect(os.RemoveAll(w.path(name))).To(Succeed())
}

func (w world) exists(name string) bool {
	_, err := os.Lstat(w.path(name))
	return err == nil
}

// know tells the stand-ins something.
func (w world) know(name, content string) {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(w.known, name), []byte(content), 0o600)).To(Succeed())
}

func (w world) knows(name string) bool {
	_, err := os.Stat(filepath.Join(w.known, name))
	return err == nil
}

// knownFile returns the content of a file of what the stand-ins know.
func (w world) knownFile(name string) string {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(w.known, name))
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

func (w world) forget(name string) {
	GinkgoHelper()
	Expect(os.Remove(filepath.Join(w.known, name))).To(Succeed())
}

// device makes a device's node, and, with a size, the disk: content is what it begins with.
func (w world) device(name string, major, minor int, bytes int64, content string) {
	GinkgoHelper()
	w.write(name, fmt.Sprintf("b %d %d\n", major, minor))
	if bytes > 0 {
		disk := fmt.Sprintf("disks/%d:%d", major, minor)
		w.know(disk, content)
		Expect(os.Truncate(filepath.Join(w.known, disk), bytes)).To(Succeed())
	}
}

// disk returns what the disk's filesystem says of itself: TYPE UUID BYTES.
func (w world) disk(numbers string) string {
	GinkgoHelper()
	return firstLine(filepath.Join(w.known, "disks", numbers))
}

func firstLine(path string) string {
	GinkgoHelper()
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	line, _, _ := bytes.Cut(bytes.TrimRight(content, "\x00"), []byte("\n"))
	return string(line)
}

// contents gives the filesystem in a file, an image or a disk, a folder with its files, and returns that.
func (w world) contents(file string) string {
	GinkgoHelper()
	var stat syscall.Stat_t
	Expect(syscall.Stat(file, &stat)).To(Succeed())
	folder := filepath.Join(w.known, "files", strconv.FormatUint(stat.Ino, 10))
	Expect(os.MkdirAll(folder, 0o755)).To(Succeed())
	return folder
}

// calls are those of the stand-ins so far.
func (w world) calls() []string {
	GinkgoHelper()
	log, err := os.ReadFile(filepath.Join(w.known, "log"))
	Expect(err).NotTo(HaveOccurred())
	return strings.Split(strings.TrimSuffix(string(log), "\n"), "\n")
}

// loops are the loop devices that are in use.
func (w world) loops() []string {
	GinkgoHelper()
	loops, err := filepath.Glob(filepath.Join(w.known, "disks", "7:*"))
	Expect(err).NotTo(HaveOccurred())
	return loops
}

// running is a program under test.
type running struct {
	world world
	cmd   *exec.Cmd
	out   *bytes.Buffer // what it says
	ended chan struct{}
	err   error // once it has ended
}

// asInContainer are arguments for env(1) that run a command with all signals as they are in a container, though
// these tests may run where some are ignored: under nohup, or in the background.
func asInContainer(command []string) []string {
	return append([]string{"--default-signal"}, command...)
}

// start starts a command as its container does.
func (w world) start(command []string, env ...string) *running {
	GinkgoHelper()
	r := &running{world: w, cmd: exec.Command("env", asInContainer(command)...), out: &bytes.Buffer{}, ended: make(chan struct{})}
	r.cmd.Env = append([]string{
		"PATH=" + w.bin + ":" + os.Getenv("PATH"), "BOSH_NODE_ROOT=" + w.root, "STAND_INS=" + w.known,
		"PERL5LIB=" + testdata("."), "PERL5OPT=-MStandIn", "LC_ALL=C",
	}, env...)
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.out
	r.cmd.WaitDelay = patience
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	Expect(r.cmd.Start()).To(Succeed())
	go func() {
		defer close(r.ended)
		r.err = r.cmd.Wait()
	}()
	DeferCleanup(func() {
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
		<-r.ended
	})
	return r
}

// at starts a command that stops before the stand-ins' call of this number does anything, and calls then
// before it goes on.
func (w world) at(call int, command, env []string, then func(*running)) *running {
	GinkgoHelper()
	w.know("stop", strconv.Itoa(call))
	r := w.start(command, env...)
	r.until(func() bool { return w.knows("stopped") })
	then(r)
	w.forget("stop")
	select {
	case <-r.ended:
		return r
	default:
	}
	goOn, err := os.OpenFile(filepath.Join(w.known, "go"), os.O_WRONLY, 0)
	Expect(err).NotTo(HaveOccurred())
	Expect(goOn.Close()).To(Succeed())
	return r
}

// run starts a command and waits until it has ended.
func (w world) run(command []string, env ...string) (status int, said string) {
	GinkgoHelper()
	r := w.start(command, env...)
	return r.wait(), r.out.String()
}

// wait waits until the program has ended, and returns its status.
func (r *running) wait() int {
	GinkgoHelper()
	Eventually(r.ended).WithTimeout(patience).Should(BeClosed(), r.story)
	if exit, ok := errors.AsType[*exec.ExitError](r.err); ok {
		return exit.ExitCode()
	}
	Expect(r.err).NotTo(HaveOccurred())
	return 0
}

// story is what has happened so far.
func (r *running) story() string { return fmt.Sprintf("calls: %q, said: %s", r.world.calls(), r.out) }

func (r *running) tell(signal syscall.Signal) {
	GinkgoHelper()
	Expect(r.cmd.Process.Signal(signal)).To(Succeed())
}

// die kills the program and what it has started, as a container ends, and waits until that is so.
func (r *running) die() {
	GinkgoHelper()
	Expect(syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)).To(Succeed())
	Eventually(r.ended).WithTimeout(patience).Should(BeClosed(), r.story)
}

// until waits for the condition; it fails when the program ends before.
func (r *running) until(condition func() bool) {
	GinkgoHelper()
	Eventually(func() bool {
		select {
		case <-r.ended:
			Fail("it has ended: " + r.out.String())
		default:
		}
		return condition()
	}).WithTimeout(patience).WithPolling(time.Millisecond).Should(BeTrue(), r.story)
}

// call calls a function of the libraries, and returns its status and what it says.
func (w world) call(libraries, function string, env ...string) (status int, said string) {
	GinkgoHelper()
	script := ". lib/shell.sh\n"
	for library := range strings.FieldsSeq(libraries) {
		script += ". lib/" + library + ".sh\n"
	}
	return w.run([]string{"/bin/bash", "-c", script + function}, env...)
}
