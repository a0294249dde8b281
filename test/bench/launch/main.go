// Command launch runs a program, and writes the program's usage to file descriptor 3 as JSON. It has few imports to stay small, because
// the peak memory of a program includes the memory of its parent at the time of the fork.
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
	start := time.Now()
	err := command.Run()
	elapsed := time.Since(start)
	var exitErr *exec.ExitError
	if err != nil && !errors.As(err, &exitErr) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		fmt.Fprintln(os.Stderr, "this system does not report the usage of a process")
		os.Exit(1)
	}
	cpu := usage.Utime.Nano() + usage.Stime.Nano()
	if _, err := fmt.Fprintf(report, `{"wall_ns":%d,"cpu_ns":%d,"peak_kib":%d}`, elapsed.Nanoseconds(), cpu, usage.Maxrss); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(command.ProcessState.ExitCode())
}
