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

// runWith runs the command to its end with these in its environment beside what is there. Its exit status other than 0 is
// an exitStatus.
func runWith(ctx context.Context, arguments []string, variables ...string) error {
	command := exec.CommandContext(ctx, arguments[0], arguments[1:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.Env = append(os.Environ(), variables...)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := command.Start(); err != nil {
		return fmt.Errorf("run %s: %w", arguments[0], err)
	}
	ended := make(chan struct{})
	defer close(ended)
	go passOn(signals, command.Process, ended)
	err := command.Wait()
	var status *exec.ExitError
	if !errors.As(err, &status) {
		return err
	}
	if code := status.ExitCode(); code >= 0 {
		return exitStatus(code)
	}
	if how, ok := status.Sys().(syscall.WaitStatus); ok && how.Signaled() {
		return exitStatus(128 + int(how.Signal())) // as shells say it
	}
	return err
}

// passOn sends the process what is sent to this one. What is typed at a terminal goes to both already.
func passOn(signals <-chan os.Signal, process *os.Process, ended <-chan struct{}) {
	typed := term.IsTerminal(int(os.Stdin.Fd()))
	for {
		select {
		case received := <-signals:
			if received != os.Interrupt || !typed {
				_ = process.Signal(received)
			}
		case <-ended:
			return
		}
	}
}
