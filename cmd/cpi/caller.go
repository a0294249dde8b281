package main

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// callerPollInterval is how often onCallerExit checks for the caller.
const callerPollInterval = 500 * time.Millisecond

// onCallerExit calls onExit once nothing waits for the response of this process: its parent has exited, or the reader of output
// has closed its end. When a director's worker is killed, another worker repeats the call with a new CPI process. Without this
// check both processes would run, and this one could undo at its end what the other has adopted.
//
// The first check runs after callerPollInterval. Most calls are finished by then, and pay for a timer only.
func onCallerExit(parent int, output *os.File, onExit func()) {
	time.AfterFunc(callerPollInterval, func() {
		if os.Getppid() != parent || outputClosed(output) {
			onExit()
			return
		}
		onCallerExit(parent, output, onExit)
	})
}

// outputClosed reports whether output is a pipe or socket that the other end has closed.
func outputClosed(output *os.File) bool {
	pollFDs := []unix.PollFd{{Fd: int32(output.Fd())}}
	n, err := unix.Poll(pollFDs, 0)
	return err == nil && n > 0 && pollFDs[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}
