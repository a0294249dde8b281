//go:build linux

package volume_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/filesystem"
	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/cpi/node/volume"
	"bosh-kubernetes-cpi/test/harness/filesystems"
)

// Environment of a child process that prepares and grows a disk, instead of running specs.
const (
	childRoot       = "VOLUME_TEST_ROOT"
	childFilesystem = "VOLUME_TEST_FILESYSTEM"
	childFormatted  = "VOLUME_TEST_FORMATTED"
)

// runChild prepares and grows the disk, as an attachment does, and exits.
func runChild() {
	disk := map[string]api.Disk{"ext4": ext4Disk, "xfs": xfsDisk}[os.Getenv(childFilesystem)]
	disk.Formatted = os.Getenv(childFormatted) != ""
	prepared, err := volume.Prepare(context.Background(), system.System{Root: os.Getenv(childRoot)}, disk)
	if err == nil {
		err = prepared.Complete(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startChild starts a child with its own mount namespace, as a container has.
func startChild(sys system.System, disk api.Disk) *exec.Cmd {
	GinkgoHelper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childRoot+"="+sys.Root, childFilesystem+"="+disk.Filesystem)
	if disk.Formatted {
		child.Env = append(child.Env, childFormatted+"=true")
	}
	child.Stdout, child.Stderr = GinkgoWriter, GinkgoWriter
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Unshareflags: unix.CLONE_NEWNS}
	Expect(child.Start()).To(Succeed())
	return child
}

// killAfter kills the child and the programs that it runs, as the runtime does with the processes of a container. It reports whether the
// child was still running.
func killAfter(child *exec.Cmd, delay time.Duration) (killed bool) {
	GinkgoHelper()
	timer := time.AfterFunc(delay, func() { _ = syscall.Kill(-child.Process.Pid, syscall.SIGKILL) })
	defer timer.Stop()
	err := child.Wait()
	status, ok := child.ProcessState.Sys().(syscall.WaitStatus)
	Expect(ok).To(BeTrue())
	killed = status.Signaled()
	if !killed {
		Expect(err).NotTo(HaveOccurred())
	}
	return killed
}

var _ = Describe("After a kill at a random moment,", Label("filesystems"), func() {
	BeforeEach(filesystems.NeedsRoot)

	// finish prepares and grows the disk without a kill.
	finish := func(sys system.System, disk api.Disk) {
		GinkgoHelper()
		prepared, err := volume.Prepare(context.Background(), sys, disk)
		Expect(err).NotTo(HaveOccurred())
		Expect(prepared.Complete(context.Background())).To(Succeed())
		Expect(prepared.Close()).To(Succeed())
	}

	// expectPrepared checks that the filesystem has the UUID of the disk and the size of the device, and is valid.
	expectPrepared := func(sys system.System, disk api.Disk) {
		GinkgoHelper()
		size, err := sizeOf(sys)
		Expect(err).NotTo(HaveOccurred())
		info, err := filesystem.Identify(sys, block)
		Expect(err).NotTo(HaveOccurred())
		Expect(info).To(Equal(filesystem.Info{Type: disk.Filesystem, UUID: uuid, SizeBytes: info.SizeBytes}))
		Expect(size - info.SizeBytes).To(BeNumerically("<", mib))
		filesystems.Check(sys, block, disk.Filesystem)
	}

	DescribeTable("the disk can be prepared, and its filesystem is valid:", func(disk api.Disk, part int, newVolume func() system.System) {
		duration := time.Minute // of a child that is not killed
		for killed, missed := 0, 0; killed < max(1, filesystems.Kills()/part); {
			sys := newVolume()
			delay := duration
			if missed > 0 {
				delay = rand.N(duration)
			}
			started := time.Now()
			if killAfter(startChild(sys, disk), delay) {
				killed++
			} else {
				missed++
				duration = min(duration, time.Since(started))
			}
			awaitFree(sys)
			finish(sys, disk)
			expectPrepared(sys, disk)
			Expect(os.Truncate(sys.Path("backing"), 0)).To(Succeed()) // all of them together would fill the disk of the host
		}
	},
		Entry("a blank one with ext4", ext4Disk, 1, func() system.System { return newBlockVolume(16) }),
		Entry("a blank one with XFS", xfsDisk, 1, func() system.System { return newBlockVolume(xfsMiB) }),
		Entry("one with ext4 that grows", formatted(ext4Disk), 1, func() system.System {
			needsOnlineResize()
			return newUsedVolume("ext4", uuid, 16, 64)
		}),
		Entry("one with XFS that grows", formatted(xfsDisk), 1, func() system.System { return newUsedVolume("xfs", uuid, xfsMiB, 384) }),
		Entry("one with ext4 that gets another UUID", formatted(ext4Disk), 5, func() system.System {
			return newUsedVolume("ext4", otherUUID, 16, 16)
		}),
		Entry("one with XFS that gets another UUID, which takes longer", formatted(xfsDisk), 10, func() system.System {
			return newUsedVolume("xfs", otherUUID, xfsMiB, xfsMiB)
		}),
	)
})

func sizeOf(sys system.System) (int64, error) {
	file, err := sys.Open(block, unix.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return file.Size()
}

func needsOnlineResize() {
	GinkgoHelper()
	allowed, err := system.System{}.HasCapability(unix.CAP_SYS_RESOURCE)
	Expect(err).NotTo(HaveOccurred())
	if !allowed {
		Skip("needs CAP_SYS_RESOURCE: without it, resize2fs runs while the filesystem is not mounted, and must not be killed")
	}
}

// newUsedVolume returns a Block volume with a filesystem that may be smaller than the volume.
func newUsedVolume(kind, uuid string, sizeMiB, volumeMiB int64) system.System {
	GinkgoHelper()
	sys := newRoot()
	writeFile(sys, "backing", "")
	Expect(os.Truncate(sys.Path("backing"), sizeMiB*mib)).To(Succeed())
	mkfs(sys, "backing", kind, uuid)
	Expect(os.Truncate(sys.Path("backing"), volumeMiB*mib)).To(Succeed())
	useBacking(sys)
	return sys
}
