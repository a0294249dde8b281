//go:build linux

package system_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/system"
)

// onPath makes a call with a result on a path.
func onPath[T any](call func(system.System, string) (T, error), path string) func(system.System) error {
	return func(s system.System) error { _, err := call(s, path); return err }
}

// onFile makes a call on the open file.
func onFile(call func(file *system.File) error) func(system.System) error {
	return func(s system.System) error {
		file, err := s.Open("/file", unix.O_RDWR, 0)
		if err != nil {
			return err
		}
		return errors.Join(call(file), file.Close())
	}
}

var _ = Describe("A system call", func() {
	DescribeTable("is repeated while a signal interrupts it, and fails with its name, its path and an errno",
		func(name, path string, do func(s system.System) error) {
			s := newSystem()
			s.Before = failing(name, unix.EIO, 1)
			failed, _ := errors.AsType[*fs.PathError](do(s))
			Expect(failed).To(HaveValue(Equal(fs.PathError{Op: name, Path: path, Err: unix.EIO})))
			s.Before = failing(name, unix.EINTR, 2)
			Expect(do(s)).To(Succeed())
			Expect(s.Before(name, path)).To(Succeed(), "both interrupts occurred")
		},
		Entry(nil, "read", "/file", onPath(system.System.ReadFile, "/file")),
		Entry(nil, "readdir", "/", onPath(system.System.ReadDir, "/")),
		Entry(nil, "readlink", "/link", onPath(system.System.Readlink, "/link")),
		Entry(nil, "readlink", "/file", onPath(system.System.EvalSymlinks, "/file")),
		Entry(nil, "stat", "/file", onPath(system.System.Stat, "/file")),
		Entry(nil, "lstat", "/link", onPath(system.System.Exists, "/link")),
		Entry(nil, "statx", "/file", onPath(system.System.CachedStat, "/file")),
		Entry(nil, "statfs", "/file", onPath(system.System.Statfs, "/file")),
		Entry(nil, "mountid", "/file", onPath(system.System.MountID, "/file")),
		Entry(nil, "write", "/a", func(s system.System) error { return s.WriteFile("/a", nil, 0o600) }),
		Entry(nil, "mkdir", "/a", func(s system.System) error { return s.Mkdir("/a", 0o700) }),
		Entry(nil, "mkdir", "/a/b", func(s system.System) error { return s.MkdirAll("/a/b", 0o700) }),
		Entry(nil, "remove", "/file", func(s system.System) error { return s.Remove("/file") }),
		Entry(nil, "remove", "/directory", func(s system.System) error { return s.RemoveAll("/directory") }),
		Entry(nil, "rename", "/file", func(s system.System) error { return s.Rename("/file", "/link") }),
		Entry(nil, "symlink", "/a", func(s system.System) error { return s.Symlink("file", "/a") }),
		Entry(nil, "chmod", "/file", func(s system.System) error { return s.Chmod("/file", 0o640) }),
		Entry(nil, "chown", "/file", func(s system.System) error { return s.Chown("/file", os.Getuid(), os.Getgid()) }),
		Entry(nil, "sync", "/", system.System.SyncAll),
		Entry(nil, "kill", fmt.Sprintf("/proc/%d", os.Getpid()), func(s system.System) error { return s.Kill(os.Getpid(), 0) }),
		Entry(nil, "unshare", "", func(s system.System) error { return s.Unshare(0) }),
		Entry(nil, "sigaction", "", system.System.ResetSignals),
		Entry(nil, "capget", "", func(s system.System) error { _, err := s.HasCapability(unix.CAP_SYS_ADMIN); return err }),
		Entry(nil, "start", "/bin/true", func(s system.System) error { return s.StartProcess("/bin/true", []string{"true"}, false) }),
		Entry(nil, "open", "/file", onFile(func(*system.File) error { return nil })),
		Entry(nil, "open", "/file", func(s system.System) error { _, err := s.ReadDirect("/file", 4094, 2); return err }),
		Entry(nil, "read", "/file", onFile(func(f *system.File) error { return f.ReadAt(make([]byte, 4096), 0) })),
		Entry(nil, "write", "/file", onFile(func(f *system.File) error { return f.WriteAt([]byte("text"), 0) })),
		Entry(nil, "fsync", "/file", onFile((*system.File).Sync)),
		Entry(nil, "syncfs", "/file", onFile((*system.File).SyncFilesystem)),
		Entry(nil, "fstat", "/file", onFile(func(f *system.File) error { _, err := f.Stat(); return err })),
		Entry(nil, "seek", "/file", onFile(func(f *system.File) error { _, err := f.Size(); return err })),
		Entry(nil, "truncate", "/file", onFile(func(f *system.File) error { return f.Truncate(1) })),
		Entry(nil, "fallocate", "/file", onFile(func(f *system.File) error { return f.Allocate(8192) })),
		Entry(nil, "ioctl", "/file", onFile(func(f *system.File) error { return f.Ioctl("ioctl", func(int) error { return nil }) })),
		Entry(nil, "flock", "/file", onFile(func(f *system.File) error { return f.Lock(unix.LOCK_EX) })),
	)

	It("reports what is gone, removes it without an error, and renames over a file only", func() {
		s := newSystem()
		_, err := s.Stat("/link")
		Expect(system.Gone(err)).To(BeTrue())
		Expect(s.Exists("/link")).To(BeTrue())
		Expect(s.Exists("/missing")).To(BeFalse())
		Expect(s.Remove("/missing")).To(Succeed())
		Expect(s.Remove("/")).To(MatchError(unix.ENOTEMPTY))
		Expect(s.Rename("/file", "/link")).To(Succeed())
		Expect(s.ReadDir("/")).To(Equal([]string{"directory", "link"}))
		Expect(s.ReadDirect("/link", 1, 2)).To(BeEquivalentTo("ex"))
		_, err = s.ReadDirect("/link", 4095, 2)
		Expect(err).To(MatchError(unix.EINVAL), "past its end")
		Expect(s.Rename("/link", "/directory")).To(MatchError(unix.EISDIR))
	})

	It("creates a device node with its mode, despite the umask", func() {
		if os.Geteuid() != 0 {
			Skip("needs root: mknod")
		}
		s := newSystem()
		DeferCleanup(unix.Umask, unix.Umask(0o077))
		Expect(s.Mknod("/node", unix.S_IFBLK|0o666, unix.Mkdev(7, 5000))).To(Succeed())
		Expect(s.CachedStat("/node")).To(And(HaveField("Mode", uint32(unix.S_IFBLK|0o666)), HaveField("Rdev", unix.Mkdev(7, 5000))))
		Expect(unix.Umask(0o077)).To(Equal(0o077))
	})

	It("opens a file that programs do not inherit, with one exclusive lock, and reads it completely or not", func() {
		s := newSystem()
		Expect(onFile(func(file *system.File) error {
			Expect(unix.FcntlInt(file.Fd(), unix.F_GETFD, 0)).To(Equal(unix.FD_CLOEXEC))
			Expect(file.ReadAt(make([]byte, 4), 4093)).To(MatchError(io.EOF))
			Expect(file.Discard()).To(MatchError(unix.ENOTTY), "it is not a device")
			Expect(file.Lock(unix.LOCK_EX | unix.LOCK_NB)).To(Succeed())
			return onFile(func(file *system.File) error { return file.Lock(unix.LOCK_SH | unix.LOCK_NB) })(s)
		})(s)).To(MatchError(unix.EWOULDBLOCK))
	})
})

type runner func(s system.System, ctx context.Context, name string, arguments ...string) (system.Output, error)

var _ = Describe("A program", func() {
	for name, run := range map[string]runner{"Run": system.System.Run, "RunGroup": system.System.RunGroup} {
		It("returns its output and its status to "+name, func(ctx SpecContext) {
			s := system.System{Before: failing("exec", unix.EINTR, 1)}
			Expect(run(s, ctx, "sh", "-c", `printf ' a\n\n'; exit 3`)).To(Equal(system.Output{Stdout: " a\n", Status: 3}))
		})

		DescribeTable("is an error of "+name+" if it does not finish", func(ctx SpecContext, program string, fault unix.Errno, message string) {
			s := system.System{Before: failing("exec", fault, 1)}
			output, err := run(s, ctx, program, "-c", "echo partial; kill -KILL $$")
			Expect(err).To(MatchError(message))
			Expect(output).To(BeZero())
		},
			Entry("killed", "sh", unix.EINTR, "run sh: signal: killed"),
			Entry("not found", "missing", unix.EINTR, `run missing: exec: "missing": executable file not found in $PATH`),
			Entry("not found at its path", "/missing", unix.EINTR, "run /missing: exec /missing: no such file or directory"),
			Entry("not started", "sh", unix.ENOMEM, "run sh: exec sh: cannot allocate memory"),
		)
	}

	It("must succeed, or its output is in the error", func(ctx SpecContext) {
		Expect(system.System{}.MustRun(ctx, "sh", "-c", "echo a; echo b >&2")).To(Equal(system.Output{Stdout: "a", Stderr: "b"}))
		_, err := system.System{}.MustRun(ctx, "sh", "-c", "echo a; echo b >&2; exit 3")
		Expect(err).To(MatchError("sh -c echo a; echo b >&2; exit 3: exit status 3: b\na"))
	})

	It("is signaled through its handle, and exits", func(ctx SpecContext) {
		program := exec.CommandContext(ctx, "tail", "-f", "/dev/null")
		Expect(program.Start()).To(Succeed())
		handle, err := system.System{Before: failing("pidfd_open", unix.EINTR, 1)}.OpenProcess(program.Process.Pid)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(handle.Close)
		Expect(handle.Exited()).To(BeFalse())
		Expect(handle.Signal(unix.SIGKILL)).To(Succeed())
		Expect(program.Wait()).To(MatchError("signal: killed"))
		Expect(handle.Exited()).To(BeTrue())
		Expect(handle.Signal(unix.SIGKILL)).To(MatchError(unix.ESRCH))
	})

	It("has the limits of this process, but its own limit of open files", func(ctx SpecContext) {
		limit, err := system.System{}.Limit(unix.RLIMIT_CORE)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(system.System{}.SetLimit, unix.RLIMIT_CORE, limit)
		Expect(system.System{}.SetLimit(unix.RLIMIT_CORE, unix.Rlimit{Max: limit.Max})).To(Succeed())
		Expect(system.System{}.Limit(unix.RLIMIT_CORE)).To(Equal(unix.Rlimit{Max: limit.Max}))
		files, err := system.System{}.OpenFiles(ctx, "/bin/cat")
		Expect(err).NotTo(HaveOccurred())
		Expect(system.System{}.MustRun(ctx, "sh", "-c", "ulimit -c; ulimit -S -n; ulimit -H -n")).
			To(HaveField("Stdout", fmt.Sprintf("0\n%d\n%d", files.Cur, files.Max)))
	})
})
