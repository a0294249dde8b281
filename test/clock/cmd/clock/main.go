//go:build linux && amd64

// Clock runs a program by a clock that jumps:
//
//	clock FILE PROGRAM [ARGUMENT...]
//
// FILE says how far it is ahead, see the package bosh-kubernetes-cpi/test/clock. The program's input, outputs and exit code are its own.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// told is the argument with which this program runs itself, to become the other under the filter.
const told = "-filtered"

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: clock FILE PROGRAM [ARGUMENT...]")
		os.Exit(2)
	}
	runtime.LockOSThread() // a thread traces, and a thread is filtered
	var err error
	if os.Args[1] == told {
		err = become(os.Args[2:])
	} else {
		err = run(os.Args[1], os.Args[2:])
	}
	fmt.Fprintln(os.Stderr, "clock:", err)
	os.Exit(1)
}

// run starts the program and answers its looks at the time until it ends, and with it this process.
func run(file string, program []string) error {
	ahead, err := os.Open(file) //nolint:gosec // the caller's
	if err != nil {
		return err
	}
	command := exec.Command("/proc/self/exe", append([]string{told}, program...)...) //nolint:gosec // it ends with this process
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := command.Start(); err != nil {
		return err
	}
	passed := make(chan os.Signal, 1)
	signal.Notify(passed, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for one := range passed {
			_ = command.Process.Signal(one)
		}
	}()
	return (&tracer{main: command.Process.Pid, ahead: ahead, known: map[int]bool{}}).trace()
}
