//go:build linux

package attach_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/attach"
	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/test/harness/filesystems"
	"bosh-kubernetes-cpi/test/harness/processtest"
)

// failNth returns a system in which the n-th call fails, and which one that was.
func (f fixture) failNth(n int, errno unix.Errno) (sys system.System, failed *string) {
	failed, number := new(string), 0
	return f.failing(func(call, path string) error {
		number++
		if number != n {
			return nil
		}
		*failed = call + " " + path + ": " + errno.Error()
		return errno
	}), failed
}

var errnos = []unix.Errno{unix.EIO, unix.ENOMEM, unix.EINTR}

// eachFault runs do with each call that it makes failing in turn, with each of the errors.
func (f fixture) eachFault(do func(sys system.System, fault string), errnos ...unix.Errno) {
	GinkgoHelper()
	for _, errno := range errnos {
		for n := 1; ; n++ {
			sys, failed := f.failNth(n, errno)
			do(sys, fmt.Sprintf("call %d: %s", n, errno))
			if *failed == "" {
				Expect(n).To(BeNumerically(">", 2), "the number of calls")
				break
			}
		}
	}
}

// Environment of a child process that runs an attachment until it is killed, instead of specs.
const (
	killRootEnv = "ATTACH_TEST_KILL_ROOT"
	killAtEnv   = "ATTACH_TEST_KILL_AT"
)

// runUntilKill runs an attachment that is stopped at once, and kills this process before the system call with the number in killAtEnv.
func runUntilKill(root string) error {
	at, err := strconv.Atoi(os.Getenv(killAtEnv))
	if err != nil {
		return err
	}
	count := 0
	f := fixture{Root: processtest.Root(root)}
	return run(attach.Run, f.failing(func(call, path string) error {
		count++
		if count == at {
			fmt.Fprintln(os.Stderr, "killed before", call, path)
			return unix.Kill(os.Getpid(), unix.SIGKILL)
		}
		return nil
	}), disk)
}

var _ = Describe("An attachment that is killed before any of its system calls", Label("filesystems"), func() {
	var f fixture
	BeforeEach(func() { f = newFixture() })

	// killEach kills one attachment before every call, or every fourth one, of those that publish or unpublish the disk. It prepares the
	// disk before each, and starts an attachment that is not killed after each.
	killEach := func(prepare, afterKill func()) {
		GinkgoHelper()
		first, stride := filesystems.Calls()
		for n, killed := first, true; killed; n += stride {
			prepare()
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), killRootEnv+"="+string(f.Root), fmt.Sprintf("%s=%d", killAtEnv, n))
			output, err := child.CombinedOutput()
			status, ok := child.ProcessState.Sys().(syscall.WaitStatus)
			Expect(ok).To(BeTrue())
			if killed = status.Signaled(); !killed {
				Expect(err).NotTo(HaveOccurred(), string(output))
				Expect(n).To(BeNumerically(">", 50), "the number of calls")
			}
			Expect(len(f.loops())).To(BeNumerically("<=", 1), string(output))
			afterKill()
			Expect(run(attach.Run, f.System(), disk)).To(Succeed(), string(output))
			f.expectUnpublished()
		}
	}
	nothing := func() {}

	It("can be started again, with a blank image", func() {
		killEach(func() {
			f.Remove(image)
			f.Remove("markers")
			f.Mkdir("markers")
		}, nothing)
	})

	It("can be started again, with a used image", func() { killEach(nothing, nothing) })

	It("can be started again, with a Block volume", func() {
		f.addBlockVolume()
		killEach(nothing, nothing)
	})

	It("leaves the disk in a VM that uses it, and no check says that it is free", func() {
		killEach(nothing, func() {
			if !f.exists(nodePath) {
				return
			}
			numbers := f.numbers()
			release := f.hold(nodePath)
			f.addMount(numbers, processtest.InVM(vm))
			_ = expectCode(run(attach.Check, f.System(), disk), "disk-in-use")
			Expect(f.numbers()).To(Equal(numbers))
			f.Remove("proc/200")
			release()
		})
	})
})
