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
	output := Output{Stdout: strings.TrimSuffix(stdout.String(), "\n"), Stderr: strings.TrimSuffix(stderr.String(), "\n")}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		output.Status = exit.ExitCode()
		return output, nil
	}
	if err != nil {
		return Output{}, fmt.Errorf("run %s: %w", name, err)
	}
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
