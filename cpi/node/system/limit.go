//go:build linux

package system

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limit returns a resource limit of this process, for example unix.RLIMIT_CORE. For unix.RLIMIT_NOFILE, the soft limit is the Go runtime's:
// see [System.OpenFiles].
func (s System) Limit(resource int) (limit unix.Rlimit, err error) {
	err = s.call("getrlimit", "", func(string) error { return unix.Prlimit(0, resource, nil, &limit) })
	return limit, err
}

// SetLimit sets a resource limit of this process and of those that it starts.
//
// After a change of unix.RLIMIT_NOFILE, Go no longer restores the original soft limit for other programs, so that the new one must be the
// one that they need. If the change fails, Go still restores it. (syscall.Setrlimit would forget it in any case.)
func (s System) SetLimit(resource int, limit unix.Rlimit) error {
	return s.call("setrlimit", "", func(string) error { return unix.Prlimit(0, resource, &limit, nil) })
}

// OpenFiles returns the limit of open files with which this process started. The Go runtime raises the soft limit of its own process at
// start, and restores it only in programs that it runs. Nothing in this process returns the original, so cat, the path of cat(1), prints
// it.
func (s System) OpenFiles(ctx context.Context, cat string) (limit unix.Rlimit, err error) {
	output, err := s.MustRun(ctx, cat, "/proc/self/limits")
	if err != nil {
		return limit, err
	}
	for line := range strings.Lines(output.Stdout) {
		values, found := strings.CutPrefix(line, "Max open files")
		if fields := strings.Fields(values); found && len(fields) >= 2 {
			if limit.Cur, err = parseLimit(fields[0]); err == nil {
				limit.Max, err = parseLimit(fields[1])
			}
			return limit, err
		}
	}
	return limit, fmt.Errorf("/proc/self/limits has no limit of open files: %q", output.Stdout)
}

func parseLimit(text string) (uint64, error) {
	if text == "unlimited" {
		return unix.RLIM_INFINITY, nil
	}
	return strconv.ParseUint(text, 10, 64)
}
