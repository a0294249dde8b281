// Command launch runs a program, and writes to file descriptor 3 what it took, as JSON. What a program takes is counted from
// its launcher's own memory on, so that this one is small: it imports as little as it can.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

func main() {
	report := os.NewFile(3, "report")
	syscall.CloseOnExec(3)
	command := exec.Command(os.Args[1], os.Args[2:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	err := command.Run()
	took := time.Since(began)
	var exitErr *exec.ExitError
	if err != nil && !errors.As(err, &exitErr) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		fmt.Fprintln(os.Stderr, "this system does not tell what a process took")
		os.Exit(1)
	}
	cpu := usage.Utime.Nano() + usage.Stime.Nano()
	if _, err := fmt.Fprintf(report, `{"wall_ns":%d,"cpu_ns":%d,"peak_kib":%d}`, took.Nanoseconds(), cpu, usage.Maxrss); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(command.ProcessState.ExitCode())
}
