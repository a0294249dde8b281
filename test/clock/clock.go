// Package clock has the clock of programs jump, of programs as they are built: each look that one takes at the time of day is answered
// with another time. The computer's own clock stays as it is, and so does the monotonic one, by which programs wait, as when an operator
// sets a computer's clock.
//
// The program in cmd/clock runs another so. It does it by ptrace, on Linux on amd64.
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

// Supported reports whether a clock can jump on this kind of computer.
const Supported = runtime.GOOS == "linux" && runtime.GOARCH == "amd64"

// Clock is what programs that it runs take for the time of day.
type Clock struct {
	program, file string
}

// New returns a clock that goes right. It builds its program in a folder and keeps there how far it has jumped.
func New(folder string) (*Clock, error) {
	c := &Clock{program: filepath.Join(folder, "clock"), file: filepath.Join(folder, "ahead")}
	build := exec.Command("go", "build", "-o", c.program, "bosh-kubernetes-cpi/test/clock/cmd/clock")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the clock: %w: %s", err, out)
	}
	if err := c.Set(0); err != nil {
		return nil, err
	}
	return c, nil
}

// CommandPrefix returns what a program and its arguments are to be preceded by.
func (c *Clock) CommandPrefix() []string { return []string{c.program, c.file} }

// Set has the clock be ahead of the computer's from now on, or behind it if less than zero.
func (c *Clock) Set(offset time.Duration) error {
	f, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600) // it is read at any moment, and so never empty
	if err != nil {
		return err
	}
	_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(offset))) //nolint:gosec // as Ahead reads it
	return errors.Join(err, f.Close())
}

// ReadOffset returns what was set last in a clock's file.
func ReadOffset(file *os.File) (time.Duration, error) {
	var raw [8]byte
	if _, err := file.ReadAt(raw[:], 0); err != nil {
		return 0, err
	}
	return time.Duration(binary.NativeEndian.Uint64(raw[:])), nil //nolint:gosec // as it was written
}
