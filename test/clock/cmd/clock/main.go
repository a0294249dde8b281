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

// filteredFlag is the argument with which this program runs itself, to become the other under the filter.
const filteredFlag = "-filtered"

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: clock FILE PROGRAM [ARGUMENT...]")
		os.Exit(2)
	}
	runtime.LockOSThread() // a thread traces, and a thread is filtered
	var err error
	if os.Args[1] == filteredFlag {
		err = execFiltered(os.Args[2:])
	} else {
		err = run(os.Args[1], os.Args[2:])
	}
	fmt.Fprintln(os.Stderr, "clock:", err)
	os.Exit(1)
}

// run starts the program and answers its looks at the time until it ends, and with it this process.
func run(file string, program []string) error {
	offsetFile, err := os.Open(file) //nolint:gosec // the caller's
	if err != nil {
		return err
	}
	command := exec.Command("/proc/self/exe", append([]string{filteredFlag}, program...)...) //nolint:gosec // it ends with this process
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
