//go:build linux

package boot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/system"
)

func TestBoot(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	RunSpecs(t, "node boot")
}

// TestMain runs the test binary as bosh-node in the namespaces of a container, if runContainer started it.
func TestMain(m *testing.M) {
	if root := os.Getenv("BOOT_TEST_ROOT"); root != "" {
		fmt.Fprintln(os.Stderr, "error:", runAsBoshNode(root))
		os.Exit(1)
	}
	if root := os.Getenv("WRAPPER_TEST_ROOT"); root != "" {
		if err := runAsWrapper(root); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	finished := make(chan int)
	go func() { finished <- m.Run() }()
	for {
		select {
		case do := <-mainThread:
			do()
		case status := <-finished:
			os.Exit(status)
		}
	}
}

// mainThread gets functions for the main thread of this process.
var mainThread = make(chan func())

func init() { //nolint:gochecknoinits // the only way to keep the main goroutine on the main thread
	runtime.LockOSThread()
}

// onMainThread calls a function on the main thread, the mounts of which are /proc/self/mountinfo.
func onMainThread(do func() error) error {
	result := make(chan error)
	mainThread <- func() { result <- do() }
	return <-result
}

// inMountNamespace calls a function while the calling thread, which must be the main thread, is in a new mount namespace.
func inMountNamespace(do func() error) error {
	namespace, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	return errors.Join(do(), unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS))
}

// runAsWrapper runs a program by its name. Instead of a signal to the init program, it writes a file.
func runAsWrapper(directory string) error {
	sys := system.System{Root: directory}
	if name := os.Args[1]; name == "mount" || name == "umount" {
		return MountWrapper(sys, name, os.Args[2:], os.Environ())
	}
	sys.Before = func(call, path string) error {
		if call != "kill" {
			return nil
		}
		if path == "/proc/1" {
			return os.WriteFile(filepath.Join(directory, "rebooted"), []byte(call+" "+path), 0o600)
		}
		if err := os.RemoveAll(filepath.Join(directory, path)); err != nil {
			return err
		}
		return unix.ESRCH
	}
	return RebootProgram(sys, os.Args[1:])
}

// fakeRoot is the directory that replaces / of a container.
type fakeRoot string

func newFakeRoot() fakeRoot {
	GinkgoHelper()
	directory, err := filepath.EvalSymlinks(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	root := fakeRoot(directory)
	root.write("proc/self/mountinfo", "")
	return root
}

func (r fakeRoot) path(name string) string { return filepath.Join(string(r), name) }

func (r fakeRoot) mkdir(name string) {
	GinkgoHelper()
	Expect(os.MkdirAll(r.path(name), 0o755)).To(Succeed())
}

func (r fakeRoot) write(name, content string) {
	GinkgoHelper()
	r.mkdir(filepath.Dir(name))
	Expect(os.WriteFile(r.path(name), []byte(content), 0o755)).To(Succeed())
}

func (r fakeRoot) read(name string) string {
	GinkgoHelper()
	content, err := os.ReadFile(r.path(name))
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

func (r fakeRoot) remove(name string) {
	GinkgoHelper()
	Expect(os.RemoveAll(r.path(name))).To(Succeed())
}

func (r fakeRoot) exists(name string) bool {
	_, err := os.Lstat(r.path(name))
	return err == nil
}

// addMount adds a line to the fake mountinfo, of the root of a filesystem with these device numbers.
func (r fakeRoot) addMount(target, numbers string) {
	GinkgoHelper()
	r.write("proc/self/mountinfo", r.read("proc/self/mountinfo")+"40 1 "+numbers+" / "+r.path(target)+" rw\n")
}

// newTestVM returns the VM of a fake root, which logs to the writer. Regular files are devices.
func (r fakeRoot) newTestVM(output io.Writer, environment ...string) *vm {
	v := newVM(system.System{Root: string(r)}, environment)
	v.log.SetOutput(output)
	v.isDevice = func(path string) (bool, error) {
		stat, err := os.Stat(r.path(path))
		return err == nil && stat.Mode().IsRegular(), nil
	}
	return v
}
