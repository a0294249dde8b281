package main

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// callerInterval is how often the caller is looked for.
const callerInterval = 500 * time.Millisecond

// whenCallerGoes calls gone once nobody waits for this process any more: the one that has started it has ended, or
// nobody reads what it writes to output. A director whose worker is killed repeats the call with another process;
// this one would go on beside that, and undo at its own end what the other has taken over.
//
// A call that ends sooner than it is looked for the first time, as most do, pays for a timer alone.
func whenCallerGoes(parent int, output *os.File, gone func()) {
	time.AfterFunc(callerInterval, func() {
		if os.Getppid() != parent || unread(output) {
			gone()
			return
		}
		whenCallerGoes(parent, output, gone)
	})
}

// unread reports whether the output is a pipe or a socket whose other end is closed.
func unread(output *os.File) bool {
	watched := []unix.PollFd{{Fd: int32(output.Fd())}}
	n, err := unix.Poll(watched, 0)
	return err == nil && n > 0 && watched[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}
