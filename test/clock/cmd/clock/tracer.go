//go:build linux && amd64

package main

import (
	"encoding/binary"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/test/clock"
)

// tracer handles the system calls that the filter selects, in all threads of a program and of its child processes.
type tracer struct {
	mainPID    int // PID of the program
	offsetFile *os.File
	known      map[int]bool // threads that have stopped at least once
}

// Entries of the auxiliary vector: see getauxval(3). auxSysinfoEHDR is the address of the vDSO, with which a program reads the
// clock without a system call.
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
		deliver, err := t.handleStop(thread, status)
		if err == nil {
			err = unix.PtraceCont(thread, deliver)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // the thread was killed meanwhile
			return err
		}
	}
}

// handleStop handles the cause of a thread's stop, and returns the signal to deliver to the thread.
func (t *tracer) handleStop(thread int, status unix.WaitStatus) (deliver int, err error) {
	isNew := !t.known[thread]
	t.known[thread] = true
	switch {
	case status.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
		return 0, t.answerClockRead(thread)
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

// answerClockRead performs clock_gettime for the thread instead of the kernel.
func (t *tracer) answerClockRead(thread int) error {
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

// hideVDSO removes the vDSO from the auxiliary vector of a program that is about to start, so that it reads the clock with system
// calls.
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
		kind, err := next()
		if err != nil || kind == auxNull {
			return err
		}
		if kind == auxSysinfoEHDR {
			_, err := unix.PtracePokeData(thread, at-word, binary.NativeEndian.AppendUint64(nil, auxIgnore))
			return err
		}
		at += word
	}
}
