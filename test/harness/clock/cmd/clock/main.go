//go:build linux && amd64

// Clock runs a program with a wall clock that jumps:
//
//	clock FILE PROGRAM [ARGUMENT...]
//
// FILE contains the offset of the clock; see the package bosh-kubernetes-cpi/test/harness/clock. Clock passes on the program's input,
// outputs and exit code.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// filteredFlag makes clock apply the filter to itself and then exec the program. Clock starts itself with this flag.
const filteredFlag = "-filtered"

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: clock FILE PROGRAM [ARGUMENT...]")
		os.Exit(2)
	}
	runtime.LockOSThread() // ptrace and seccomp apply to one thread
	var err error
	if os.Args[1] == filteredFlag {
		err = execFiltered(os.Args[2:])
	} else {
		err = run(os.Args[1], os.Args[2:])
	}
	fmt.Fprintln(os.Stderr, "clock:", err)
	os.Exit(1)
}

// run starts the program and traces it. It returns only on error: when the program exits, this process exits, too.
func run(file string, program []string) error {
	offsetFile, err := os.Open(file) //nolint:gosec // the caller chooses the file
	if err != nil {
		return err
	}
	command := exec.Command("/proc/self/exe", append([]string{filteredFlag}, program...)...) //nolint:gosec // the caller chooses the program
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := command.Start(); err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for received := range signals {
			_ = command.Process.Signal(received)
		}
	}()
	return (&tracer{mainPID: command.Process.Pid, offsetFile: offsetFile, known: map[int]bool{}}).trace()
}
