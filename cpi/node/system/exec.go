//go:build linux

package system

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Exec replaces this process by a program. Its threads must not run anything else that matters: they end. A namespace that only the calling
// thread entered is the program's; see [System.Unshare].
func (s System) Exec(path string, arguments, environment []string) error {
	return s.call("execve", path, func(path string) error { return syscall.Exec(path, arguments, environment) })
}

// Unshare moves the calling thread to new namespaces. The goroutine must have called [runtime.LockOSThread].
func (s System) Unshare(flags int) error {
	return s.call("unshare", "", func(string) error { return unix.Unshare(flags) })
}

// StartProcess starts a program that outlives this one. arguments begin with its argv[0]. It has no input. If output is set, it writes to
// the standard output and error of this process. The path is not below Root, because it is of this process.
func (s System) StartProcess(path string, arguments []string, output bool) error {
	return s.call("start", path, func(string) error {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer null.Close()
		files := []*os.File{null, null, null}
		if output {
			files = []*os.File{null, os.Stdout, os.Stderr}
		}
		process, err := os.StartProcess(path, arguments, &os.ProcAttr{Files: files})
		if err != nil {
			return err
		}
		return process.Release()
	})
}

// Kill sends a signal to a process.
func (s System) Kill(process int, signal unix.Signal) error {
	return s.call("kill", processPath(process), func(string) error { return unix.Kill(process, signal) })
}

// ResetSignals makes the calling thread handle all signals as the kernel does by default, for a program that replaces this process: the
// kernel resets only the handlers, and a program inherits ignored and blocked signals. The goroutine must have called
// [runtime.LockOSThread].
func (s System) ResetSignals() error {
	return s.call("sigaction", "", func(string) error {
		for signal := 1; signal <= lastSignal; signal++ {
			if err := resetIgnored(signal); err != nil {
				return err
			}
		}
		return unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil)
	})
}

// lastSignal is _NSIG of the kernel, except on MIPS.
const lastSignal = 64

// sigaction is struct sigaction of the kernel on amd64 and arm64.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// resetIgnored does not change the handlers of the Go runtime, because other threads still run.
func resetIgnored(signal int) error {
	const ignored = 1 // SIG_IGN
	var current, byDefault sigaction
	number := uintptr(signal)
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, number, 0, uintptr(unsafe.Pointer(&current)), 8, 0, 0)
	if errno == 0 && current.handler == ignored {
		_, _, errno = unix.RawSyscall6(unix.SYS_RT_SIGACTION, number, uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	}
	if errno != 0 {
		return errno
	}
	return nil
}
