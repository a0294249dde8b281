//go:build linux

package system

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// groupDelay is how long RunGroup waits for the output of a program after it exited, or should exit.
const groupDelay = time.Second

// RunGroup runs a program in its own process group, and terminates the group when ctx is done. Unlike Run, it does not wait for
// processes that the program starts and leaves behind, and it does not return what the program prints to stderr.
func (s System) RunGroup(ctx context.Context, name string, arguments ...string) (Output, error) {
	var stdout bytes.Buffer
	err := s.call("exec", name, func(string) error {
		command := exec.CommandContext(ctx, name, arguments...)
		command.Stdout = &stdout
		command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		command.Cancel = func() error { return unix.Kill(-command.Process.Pid, unix.SIGTERM) }
		command.WaitDelay = groupDelay
		return command.Run()
	})
	if errors.Is(err, exec.ErrWaitDelay) { // the program succeeded, and left a process behind
		err = nil
	}
	return outcome(name, Output{Stdout: stdout.String()}, err)
}
