//go:build linux

package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Output is what a program printed, without the last newline, and its exit status.
type Output struct {
	Stdout, Stderr string
	Status         int
}

// Run runs a program of the stemcell. A program that did not start, or was killed, for example by the kernel without memory, is an error:
// its failure does not answer the question that the program was asked.
func (s System) Run(ctx context.Context, name string, arguments ...string) (Output, error) {
	var stdout, stderr bytes.Buffer
	err := s.call("exec", name, func(string) error {
		command := exec.CommandContext(ctx, name, arguments...)
		command.Stdout, command.Stderr = &stdout, &stderr
		return command.Run()
	})
	return outcome(name, Output{Stdout: stdout.String(), Stderr: stderr.String()}, err)
}

// outcome returns what a program printed, and its exit status, or an error if it did not exit by itself.
func outcome(name string, output Output, err error) (Output, error) {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		output.Status, err = exit.ExitCode(), nil
	}
	if err != nil {
		return Output{}, fmt.Errorf("run %s: %w", name, err)
	}
	output.Stdout, output.Stderr = strings.TrimSuffix(output.Stdout, "\n"), strings.TrimSuffix(output.Stderr, "\n")
	return output, nil
}

// MustRun runs a program that must succeed. The error contains what the program printed.
func (s System) MustRun(ctx context.Context, name string, arguments ...string) (Output, error) {
	output, err := s.Run(ctx, name, arguments...)
	if err != nil {
		return output, err
	}
	if output.Status != 0 {
		return output, fmt.Errorf("%s %s: exit status %d: %s", name, strings.Join(arguments, " "), output.Status,
			strings.TrimSpace(output.Stderr+"\n"+output.Stdout))
	}
	return output, nil
}
