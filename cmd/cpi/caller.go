package main

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// callerPollInterval is how often onCallerExit checks for the caller.
const callerPollInterval = 500 * time.Millisecond

// onCallerExit calls onExit when the response of this process is no longer needed: its parent exited, or the reader closed
// output. If a director worker is killed, another worker retries the call with a new CPI process. Without this check, both
// would run, and this one could roll back objects that the other has adopted.
//
// The first check runs after callerPollInterval. Most calls finish before that and incur only the cost of a timer.
func onCallerExit(parent int, output *os.File, onExit func()) {
	time.AfterFunc(callerPollInterval, func() {
		if os.Getppid() != parent || outputClosed(output) {
			onExit()
			return
		}
		onCallerExit(parent, output, onExit)
	})
}

// outputClosed reports whether output is a pipe or socket, and the other end is closed.
func outputClosed(output *os.File) bool {
	pollFDs := []unix.PollFd{{Fd: int32(output.Fd())}}
	n, err := unix.Poll(pollFDs, 0)
	return err == nil && n > 0 && pollFDs[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}
