// Package clock runs unmodified programs with a wall clock that jumps, as when an operator sets the clock of a computer. The host's
// clock and the monotonic clock, which timers use, do not change.
//
// The program in cmd/clock runs another program with such a clock. It uses ptrace, and requires Linux on amd64.
package clock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// Supported reports whether the package supports this platform.
const Supported = runtime.GOOS == "linux" && runtime.GOARCH == "amd64"

// Clock is the wall clock of the programs that run with its CommandPrefix.
type Clock struct {
	program, file string
}

// New returns a clock with the time of the host. It builds cmd/clock in dir, and stores the clock's offset there.
func New(dir string) (*Clock, error) {
	c := &Clock{program: filepath.Join(dir, "clock"), file: filepath.Join(dir, "offset")}
	build := exec.Command("go", "build", "-o", c.program, "bosh-kubernetes-cpi/test/harness/clock/cmd/clock")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the clock program: %w: %s", err, out)
	}
	if err := c.Set(0); err != nil {
		return nil, err
	}
	return c, nil
}

// CommandPrefix returns the words to put before a program and its arguments.
func (c *Clock) CommandPrefix() []string { return []string{c.program, c.file} }

// Set sets the offset from the host's clock. It also applies to running programs.
func (c *Clock) Set(offset time.Duration) error {
	f, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600) // not truncated: programs may read it at any moment
	if err != nil {
		return err
	}
	_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(offset))) //nolint:gosec // ReadOffset converts it back
	return errors.Join(err, f.Close())
}

// ReadOffset reads the offset from a clock's file.
func ReadOffset(file *os.File) (time.Duration, error) {
	var raw [8]byte
	if _, err := file.ReadAt(raw[:], 0); err != nil {
		return 0, err
	}
	return time.Duration(binary.NativeEndian.Uint64(raw[:])), nil //nolint:gosec // Set converted it
}
