//go:build linux

package attach_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/attach"
	"bosh-kubernetes-cpi/cpi/node/device"
	"bosh-kubernetes-cpi/cpi/node/lock"
	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/test/harness/filesystems"
	"bosh-kubernetes-cpi/test/harness/processtest"
)

const (
	vm       = "bosh/agent-a"
	nodePath = "/devices/disk-1"
	lockPath = "/devices/.disk-1.lock"
	image    = "/volume/disk.img"
)

// waitForStopEnv makes this program wait for a signal to stop, and then for the end of its input.
const waitForStopEnv = "ATTACH_TEST_WAIT_FOR_STOP"

func TestMain(m *testing.M) {
	if root := os.Getenv(killRootEnv); root != "" {
		if err := runUntilKill(root); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(waitForStopEnv) == "" {
		os.Exit(m.Run())
	}
	ctx, _ := system.WithStop(context.Background())
	fmt.Fprintln(os.Stdout, "started")
	<-ctx.Done()
	fmt.Fprintln(os.Stdout, "stopped")
	_, _ = io.ReadAll(os.Stdin)
}

func TestAttach(t *testing.T) {
	filesystems.Isolate()
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	RunSpecs(t, "attach")
}

// disk is the disk of all specs.
var disk = api.Disk{CID: "disk-1", SizeMiB: 8, Filesystem: "ext4", VM: vm}

// fixture is a container of an attachment: a directory that replaces /, with fake processes and real devices.
type fixture struct {
	processtest.Root
	log *gbytes.Buffer
}

func newFixture() fixture {
	GinkgoHelper()
	if os.Geteuid() != 0 {
		Skip("needs root: loop devices and device nodes")
	}
	f := fixture{processtest.New(), gbytes.NewBuffer()}
	for _, directory := range []string{"dev", "devices", "volume", "markers", "mnt", "tmp", "sys"} {
		f.Mkdir(directory)
	}
	f.Write("proc/self/oom_score_adj", "1000")
	f.Mkdir("sys/block")
	f.Link("/sys/dev", "sys/dev")
	f.Add(processtest.Process{ID: 1, Name: "systemd"})
	f.Remove("proc/1/root")
	f.Add(processtest.Process{ID: 100, Parent: 1, Name: "runsvdir", InnerIDs: []int{1}, Mounts: []string{processtest.InVM(vm)}})
	DeferCleanup(slog.SetDefault, slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(f.log, nil)))
	DeferCleanup(func() {
		for _, path := range f.loops() {
			_ = exec.Command("losetup", "--detach", path).Run() // fails if it is gone meanwhile
		}
		Eventually(f.loops).Should(BeEmpty())
	})
	return f
}

// System returns a system with this root. It has only the loop devices of the spec, because the others of this host change at any time.
func (f fixture) System() system.System { return f.failing(func(string, string) error { return nil }) }

// failing returns a system in which calls fail while fails returns an error.
func (f fixture) failing(fails func(call, path string) error) system.System {
	sys := f.Root.System()
	sys.Before = func(call, path string) error {
		f.addLoop(path)
		return fails(call, path)
	}
	return sys
}

// addLoop adds a loop device to the container.
func (f fixture) addLoop(path string) {
	name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, "/sys/block/"), "/dev/"), "/")
	if strings.HasPrefix(name, "loop") && name != "loop-control" {
		_ = os.Symlink("/sys/block/"+name, f.Path("sys/block/"+name))
	}
}

// bindImage binds a loop device to the image file, as an earlier attachment did.
func (f fixture) bindImage() (path string, numbers device.Numbers) {
	GinkgoHelper()
	path = losetup("--find", "--show", f.Path(image))
	f.addLoop(path)
	numbers, err := device.NumbersOf(system.System{}, path)
	Expect(err).NotTo(HaveOccurred())
	return path, numbers
}

// publishImage formats the image, binds a loop device to it and publishes that, as an earlier attachment did.
func (f fixture) publishImage() (path string, numbers device.Numbers) {
	GinkgoHelper()
	format(f.Path(image))
	path, numbers = f.bindImage()
	f.mknod(nodePath, numbers)
	f.mknod("/dev/"+loopName(f), numbers)
	return path, numbers
}

func losetup(arguments ...string) string {
	GinkgoHelper()
	output, err := exec.Command("losetup", arguments...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	return strings.TrimSpace(string(output))
}

// loops returns the loop devices of the image file.
func (f fixture) loops() []string {
	GinkgoHelper()
	if !f.exists(image) {
		return nil
	}
	return strings.Fields(losetup("--associated", f.Path(image), "--noheadings", "--output", "NAME"))
}

// format creates a filesystem on the device or in the file.
func format(path string) {
	GinkgoHelper()
	output, err := exec.Command("mkfs.ext4", "-q", path, "8m").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
}

// addBlockVolume adds the device of a Block volume, which is a loop device of another file.
func (f fixture) addBlockVolume() device.Numbers {
	GinkgoHelper()
	backing := filepath.Join(GinkgoT().TempDir(), "backing")
	Expect(os.WriteFile(backing, nil, 0o600)).To(Succeed())
	Expect(os.Truncate(backing, disk.SizeMiB<<20)).To(Succeed())
	path := losetup("--find", "--show", backing)
	f.addLoop(path)
	DeferCleanup(func() { losetup("--detach", path) })
	numbers, err := device.NumbersOf(system.System{}, path)
	Expect(err).NotTo(HaveOccurred())
	f.mknod("/dev/volume", numbers)
	return numbers
}

func (f fixture) mknod(path string, numbers device.Numbers) {
	GinkgoHelper()
	Expect(f.System().Mknod(path, unix.S_IFBLK|0o660, numbers.Dev())).To(Succeed())
}

func (f fixture) exists(path string) bool {
	GinkgoHelper()
	exists, err := f.System().Exists(path)
	Expect(err).NotTo(HaveOccurred())
	return exists
}

// numbers returns the numbers of the published node.
func (f fixture) numbers() device.Numbers {
	GinkgoHelper()
	numbers, err := device.NumbersOf(f.System(), nodePath)
	Expect(err).NotTo(HaveOccurred())
	return numbers
}

func (f fixture) isLocked() (bool, error) { return lock.Held(f.System(), lockPath) }

// expectUnpublished expects that no file of the attachment is left in the VM's directory, and no loop device.
func (f fixture) expectUnpublished() {
	GinkgoHelper()
	Expect(os.ReadDir(f.Path("devices"))).To(BeEmpty())
	Eventually(f.loops).Should(BeEmpty()) // other programs of this host open loop devices
}

// hold opens the published device exclusively, as a mount does, until the result is called.
func (f fixture) hold(path string) (release func()) {
	GinkgoHelper()
	file, err := device.OpenExclusive(f.System(), path)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = file.Close() })
	return func() { Expect(file.Close()).To(Succeed()) }
}

// addMount adds a process that has the device mounted.
func (f fixture) addMount(numbers device.Numbers, more ...string) {
	GinkgoHelper()
	mounts := append(slices.Clone(more), processtest.Mount(7000100, numbers.String(), "/", "/var/vcap/store", "ext4"))
	f.Add(processtest.Process{ID: 200, Parent: 1, Name: "postgres", Mounts: mounts})
}

// addOpener adds a process of the VM that has the device at this path open without a mount.
func (f fixture) addOpener(path string) {
	GinkgoHelper()
	f.Add(processtest.Process{ID: 200, Parent: 100, Name: "dd"})
	f.Open(200, 3, f.Path(path), 7000099)
}

// running is a command that was started.
type running struct {
	stop context.CancelFunc
	done chan struct{} // closed at its end
	err  *error
}

type command func(ctx context.Context, sys system.System, disk api.Disk) error

// start starts the command, and stops it at the end of the spec.
func start(run command, sys system.System, disk api.Disk) running {
	ctx, stop := context.WithCancel(context.Background())
	r := running{stop, make(chan struct{}), new(error)}
	go func() {
		defer close(r.done)
		defer GinkgoRecover()
		*r.err = run(ctx, sys, disk)
	}()
	DeferCleanup(func() {
		stop()
		_ = r.wait()
	})
	return r
}

// attach starts an attachment, and waits until it published its disk.
func (f fixture) attach(sys system.System) running {
	GinkgoHelper()
	r := start(attach.Run, sys, disk)
	f.waitPublished(r)
	return r
}

func (f fixture) waitPublished(r running) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		select {
		case <-r.done:
			StopTrying("the command ended").Wrap(*r.err).Now()
		default:
		}
		g.Expect(f.isLocked()).To(BeTrue())
	}).Should(Succeed())
}

// wait returns the result of the command.
func (r running) wait() (err error) {
	GinkgoHelper()
	Eventually(r.done).Should(BeClosed())
	return *r.err
}

// run runs the command without waiting for retries or a signal.
func run(command command, sys system.System, disk api.Disk) error {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	return command(ctx, sys, disk)
}

func expectCode(err error, code string) *api.Error {
	GinkgoHelper()
	var coded *api.Error
	Expect(errors.As(err, &coded)).To(BeTrue(), "%v", err)
	Expect(coded.Code).To(Equal(code))
	return coded
}
