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

// tracer sees the system calls that the filter tells of, in all threads of a program and of those that it starts.
type tracer struct {
	mainPID    int // the program's process
	offsetFile *os.File
	known      map[int]bool // threads that have stopped before
}

// The auxiliary vector, with which the kernel tells a program of the clock that it can read without a system call: see getauxval(3).
const (
	auxNull        = 0
	auxIgnore      = 1
	auxSysinfoEHDR = 33
)

// trace lets threads go on each time that one stops. It ends this process as the program ends.
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
		if err != nil && !errors.Is(err, unix.ESRCH) { // killed meanwhile
			return err
		}
	}
}

// handleStop sees to why a thread has stopped, and returns the signal that it is to get.
func (t *tracer) handleStop(thread int, status unix.WaitStatus) (deliver int, err error) {
	started := !t.known[thread]
	t.known[thread] = true
	switch {
	case status.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
		return 0, t.answerClockRead(thread)
	case status.TrapCause() == unix.PTRACE_EVENT_EXEC:
		return 0, hideVDSO(thread)
	case status.TrapCause() > 0:
		return 0, nil
	case started && status.StopSignal() == unix.SIGSTOP: // each new thread begins so
		return 0, nil
	default:
		return int(status.StopSignal()), nil
	}
}

// answerClockRead answers a look at the time in the kernel's place.
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
	answer := binary.NativeEndian.AppendUint64(nil, uint64(now.Unix()))         //nolint:gosec // after 1970
	answer = binary.NativeEndian.AppendUint64(answer, uint64(now.Nanosecond())) //nolint:gosec // after 1970
	if _, err := unix.PtracePokeData(thread, uintptr(registers.Rsi), answer); err != nil {
		return err
	}
	registers.Orig_rax, registers.Rax = ^uint64(0), 0 // no system call, and it succeeds
	return unix.PtraceSetRegs(thread, &registers)
}

// hideVDSO has a program that is about to begin ask the kernel for the time: it does not find what it would read it from.
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
	if _, err := next(); err != nil { // how many arguments
		return err
	}
	for range 2 { // arguments, then the environment
		for {
			if one, err := next(); err != nil {
				return err
			} else if one == 0 {
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
