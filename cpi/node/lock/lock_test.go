//go:build linux

package lock_test

import (
	"os"
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/lock"
	"bosh-kubernetes-cpi/cpi/node/system"
)

const path = "/.disk-1.lock"

var errnos = []unix.Errno{unix.EIO, unix.ENOMEM, unix.EINTR}

var _ = Describe("The lock of an attachment", func() {
	var sys system.System
	BeforeEach(func() { sys = system.System{Root: GinkgoT().TempDir()} })

	take := func() *lock.Lock {
		GinkgoHelper()
		l, err := lock.Take(sys, path)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { _ = l.Release() })
		return l
	}

	// failNth returns a system in which the n-th call fails.
	failNth := func(n int, errno unix.Errno) system.System {
		failing, number := sys, 0
		failing.Before = func(string, string) error {
			if number++; number == n {
				return errno
			}
			return nil
		}
		return failing
	}

	It("is held until it is released", func() {
		Expect(lock.Held(sys, path)).To(BeFalse())
		l := take()
		Expect(lock.Held(sys, path)).To(BeTrue())
		Expect(os.Stat(sys.Path(path))).To(HaveField("Mode()", os.FileMode(0o600)))
		Expect(l.Release()).To(Succeed())
		Expect(lock.Held(sys, path)).To(BeFalse())
	})

	It("is held for flock(1), and a lock of flock(1) is held for this package", func() {
		take()
		held := func() error { return exec.Command("flock", "--shared", "--nonblock", sys.Path(path), "true").Run() }
		Expect(held()).To(HaveOccurred())
		flock := exec.Command("flock", sys.Path("/.disk-2.lock"), "cat")
		input, err := flock.StdinPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(flock.Start()).To(Succeed())
		Eventually(func() (bool, error) { return lock.Held(sys, "/.disk-2.lock") }).Should(BeTrue())
		Expect(input.Close()).To(Succeed())
		Expect(flock.Wait()).To(Succeed())
		Expect(lock.Held(sys, "/.disk-2.lock")).To(BeFalse())
	})

	It("is taken although a process checks whether it is held", func() {
		sys.Before = func(call, _ string) error {
			if call == "rename" {
				_, err := lock.Held(system.System{Root: sys.Root}, path)
				return err
			}
			return nil
		}
		Expect(os.WriteFile(sys.Path(path), nil, 0o600)).To(Succeed())
		take()
		Expect(lock.Held(system.System{Root: sys.Root}, path)).To(BeTrue())
	})

	It("is current until another attachment replaces it", func() {
		l := take()
		Expect(l.IsCurrent()).To(BeTrue())
		other := take()
		Expect(l.IsCurrent()).To(BeFalse())
		Expect(other.IsCurrent()).To(BeTrue())
		Expect(os.Remove(sys.Path(path))).To(Succeed())
		Expect(other.IsCurrent()).To(BeFalse())
	})

	DescribeTable("replaces a link that the VM created, without changing its target", func(link string) {
		Expect(os.WriteFile(sys.Path("/passwd"), []byte("root"), 0o644)).To(Succeed())
		Expect(os.Symlink(sys.Path("/passwd"), sys.Path(link))).To(Succeed())
		take()
		Expect(os.ReadFile(sys.Path("/passwd"))).To(BeEquivalentTo("root"))
		Expect(lock.Held(sys, "/passwd")).To(BeFalse())
		Expect(lock.Held(sys, path)).To(BeTrue())
	},
		Entry("at the path", path),
		Entry("at the path of the new file", path+".new"),
	)

	It("is not held if its path is a link, and no file is created at the target of the link", func() {
		Expect(os.Symlink(sys.Path("/nologin"), sys.Path(path))).To(Succeed())
		Expect(lock.Held(sys, path)).To(BeFalse())
		Expect(sys.Path("/nologin")).NotTo(BeAnExistingFile())
	})

	It("is not taken if the VM locks the new file first", func() {
		sys.Before = func(call, _ string) error {
			if call == "flock" {
				file, err := os.Open(sys.Path(path + ".new"))
				Expect(err).NotTo(HaveOccurred())
				DeferCleanup(file.Close)
				Expect(unix.Flock(int(file.Fd()), unix.LOCK_SH)).To(Succeed())
			}
			return nil
		}
		_, err := lock.Take(sys, path)
		Expect(err).To(MatchError(unix.EWOULDBLOCK))
		Expect(os.ReadDir(sys.Root)).To(BeEmpty())
	})

	It("is held, or an error, if a system call fails", func() {
		take()
		for n := 1; n <= 2; n++ { // open and flock
			for _, errno := range errnos {
				held, err := lock.Held(failNth(n, errno), path)
				Expect(held).To(Equal(err == nil), "call %d: %s", n, errno)
			}
		}
	})

	It("is current, or an error, if a system call fails", func() {
		for n := 1; n <= 2; n++ { // fstat and lstat
			for _, errno := range errnos {
				failing := failNth(n+4, errno) // remove, open, flock and rename come first
				l, err := lock.Take(failing, path)
				Expect(err).NotTo(HaveOccurred())
				current, err := l.IsCurrent()
				Expect(current).To(Equal(err == nil), "call %d: %s", n, errno)
				Expect(l.Release()).To(Succeed())
			}
		}
	})

	It("is taken, or an error, if a system call fails", func() {
		for n := 1; n <= 4; n++ {
			for _, errno := range errnos {
				Expect(os.RemoveAll(sys.Path(path))).To(Succeed())
				l, err := lock.Take(failNth(n, errno), path)
				held, heldErr := lock.Held(sys, path)
				Expect(heldErr).NotTo(HaveOccurred())
				Expect(held).To(Equal(err == nil), "call %d: %s", n, errno)
				if err == nil {
					Expect(l.Release()).To(Succeed())
				}
			}
		}
	})
})
