package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// terminationSignals returns the signals that cancel a command, which then deletes its temporary objects. A terminal sends SIGHUP when the
// connection breaks; a command that nohup started ignores it.
func terminationSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// runCommand runs the command with additional environment variables, and waits for it. If its exit status is not 0, the error is an
// exitStatus.
func runCommand(ctx context.Context, arguments []string, env ...string) error {
	return runWithLock(ctx, nil, arguments, env...)
}

// runWithLock is like runCommand. The command inherits the lock, if it is not nil: it ends only after the command does, even if this
// process is killed before.
func runWithLock(ctx context.Context, lock *os.File, arguments []string, env ...string) error {
	command := exec.CommandContext(ctx, arguments[0], arguments[1:]...)
	if lock != nil {
		command.ExtraFiles = []*os.File{lock}
	}
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.Env = append(os.Environ(), env...)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, terminationSignals()...)
	defer func() { signal.Stop(signals); close(signals) }()
	if err := command.Start(); err != nil {
		return fmt.Errorf("run %s: %w", arguments[0], err)
	}
	go forwardSignals(signals, command.Process)
	err := command.Wait()
	var exitErr *exec.ExitError
	if !errors.As(err, &exitErr) {
		return err
	}
	if code := exitErr.ExitCode(); code >= 0 {
		return exitStatus(code)
	}
	if waitStatus, ok := exitErr.Sys().(syscall.WaitStatus); ok && waitStatus.Signaled() {
		return exitStatus(128 + int(waitStatus.Signal())) // as in shells
	}
	return err
}

// forwardSignals forwards signals to the process, except interrupts from a terminal, which the process receives itself.
func forwardSignals(signals <-chan os.Signal, process *os.Process) {
	interactive := term.IsTerminal(int(os.Stdin.Fd()))
	for sig := range signals {
		if sig != os.Interrupt || !interactive {
			_ = process.Signal(sig)
		}
	}
}
