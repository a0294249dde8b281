//go:build linux && amd64

package main

import (
	"encoding/binary"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/test/harness/clock"
)

// tracer handles the system calls selected by the filter, in all threads of a program and its child processes.
type tracer struct {
	mainPID    int
	offsetFile *os.File
	known      map[int]bool // threads that stopped at least once
}

// Types of entries in the auxiliary vector: see getauxval(3). The entry auxSysinfoEHDR is the address of the vDSO, which lets a program
// read the clock without a system call.
const (
	auxNull        = 0
	auxIgnore      = 1
	auxSysinfoEHDR = 33
)

// trace handles stops of threads until the program exits, and then exits this process with the program's exit code.
func (t *tracer) trace() error {
	var status unix.WaitStatus
	if _, err := unix.Wait4(t.mainPID, &status, unix.WALL, nil); err != nil {
		return os.NewSyscallError("wait4", err)
	}
	const options = unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACEEXEC |
		unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK
	if err := unix.PtraceSetOptions(t.mainPID, options); err != nil {
		return os.NewSyscallError("PTRACE_SETOPTIONS", err)
	}
	t.known[t.mainPID] = true
	if err := unix.PtraceCont(t.mainPID, 0); err != nil {
		return os.NewSyscallError("PTRACE_CONT", err)
	}
	for {
		thread, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return os.NewSyscallError("wait4", err)
		case !status.Stopped():
			if thread == t.mainPID && status.Exited() {
				os.Exit(status.ExitStatus())
			}
			if thread == t.mainPID {
				os.Exit(128 + int(status.Signal()))
			}
			delete(t.known, thread)
			continue
		}
		signal, err := t.handleStop(thread, status)
		if err == nil {
			err = unix.PtraceCont(thread, signal)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // the thread was killed meanwhile
			return err
		}
	}
}

// handleStop handles the cause of a thread's stop, and returns the signal to deliver to the thread.
func (t *tracer) handleStop(thread int, status unix.WaitStatus) (signal int, err error) {
	isNew := !t.known[thread]
	t.known[thread] = true
	switch {
	case status.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
		return 0, t.emulateClockGettime(thread)
	case status.TrapCause() == unix.PTRACE_EVENT_EXEC:
		return 0, hideVDSO(thread)
	case status.TrapCause() > 0:
		return 0, nil
	case isNew && status.StopSignal() == unix.SIGSTOP: // a new thread starts with this stop
		return 0, nil
	default:
		return int(status.StopSignal()), nil
	}
}

// emulateClockGettime performs clock_gettime for the thread in place of the kernel.
func (t *tracer) emulateClockGettime(thread int) error {
	var registers unix.PtraceRegs
	if err := unix.PtraceGetRegs(thread, &registers); err != nil {
		return err
	}
	offset, err := clock.ReadOffset(t.offsetFile)
	if err != nil {
		return err
	}
	now := time.Now().Add(offset)
	timespec := binary.NativeEndian.AppendUint64(nil, uint64(now.Unix()))           //nolint:gosec // after 1970
	timespec = binary.NativeEndian.AppendUint64(timespec, uint64(now.Nanosecond())) //nolint:gosec // after 1970
	if _, err := unix.PtracePokeData(thread, uintptr(registers.Rsi), timespec); err != nil {
		return err
	}
	registers.Orig_rax, registers.Rax = ^uint64(0), 0 // skip the system call, and return 0
	return unix.PtraceSetRegs(thread, &registers)
}

// hideVDSO removes the vDSO from the auxiliary vector of a starting program, so that it reads the clock with system calls.
func hideVDSO(thread int) error {
	var registers unix.PtraceRegs
	if err := unix.PtraceGetRegs(thread, &registers); err != nil {
		return err
	}
	const word = 8
	at := uintptr(registers.Rsp)
	next := func() (uint64, error) {
		var content [word]byte
		_, err := unix.PtracePeekData(thread, at, content[:])
		at += word
		return binary.NativeEndian.Uint64(content[:]), err
	}
	if _, err := next(); err != nil { // argc
		return err
	}
	for range 2 { // skip argv, then the environment
		for {
			if pointer, err := next(); err != nil {
				return err
			} else if pointer == 0 {
				break
			}
		}
	}
	for {
		entryType, err := next()
		if err != nil || entryType == auxNull {
			return err
		}
		if entryType == auxSysinfoEHDR {
			_, err := unix.PtracePokeData(thread, at-word, binary.NativeEndian.AppendUint64(nil, auxIgnore))
			return err
		}
		at += word
	}
}
