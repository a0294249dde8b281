package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrInUse means that a device is mounted, or used by another program.
var ErrInUse = errors.New("is in use")

// Attach returns the file's loop device, and creates one if necessary.
func Attach(ctx context.Context, file string) (string, error) {
	out, err := run(ctx, "losetup", "--find", "--show", "--nooverlap", file)
	return strings.TrimSpace(out), err
}

// LoopDevices returns the file's loop devices.
func LoopDevices(ctx context.Context, file string) ([]string, error) {
	out, err := run(ctx, "losetup", "--list", "--noheadings", "--output", "NAME", "--associated", file)
	return strings.Fields(out), err
}

// Detach detaches the file's loop devices. It fails if a device is in use, because the kernel would detach it at an unpredictable time.
func Detach(ctx context.Context, file string) error {
	loops, err := LoopDevices(ctx, file)
	if err != nil {
		return err
	}
	for _, loop := range loops {
		if err := checkUnused(loop); err != nil {
			return err
		}
	}
	for _, loop := range loops {
		if _, err := run(ctx, "losetup", "--detach", loop); err != nil {
			return err
		}
	}
	remaining, err := LoopDevices(ctx, file)
	if err == nil && len(remaining) > 0 {
		err = fmt.Errorf("%s %w: a program has it open", remaining[0], ErrInUse)
	}
	return err
}

// checkUnused returns ErrInUse if the device is mounted in any mount namespace, or opened exclusively by a program.
func checkUnused(loop string) error {
	fd, err := unix.Open(loop, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%s %w: it is mounted, or opened exclusively by a program", loop, ErrInUse)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", loop, err)
	}
	return unix.Close(fd)
}

// UpdateCapacity grows the device to the size of its file.
func UpdateCapacity(ctx context.Context, loop string) error {
	_, err := run(ctx, "losetup", "--set-capacity", loop)
	return err
}

// Flush writes the device's cached data to its file.
func Flush(loop string) error {
	file, err := os.OpenFile(loop, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Sync(); err != nil {
		return fmt.Errorf("flush %s: %w", loop, err)
	}
	return nil
}

// Size returns the size of the device in bytes.
func Size(ctx context.Context, device string) (int64, error) {
	out, err := run(ctx, "blockdev", "--getsize64", device)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(out), 10, 64)
}

// Number returns the device's number, formatted as in mountinfo.
func Number(device string) (string, error) {
	var stat unix.Stat_t
	if err := unix.Stat(device, &stat); err != nil {
		return "", fmt.Errorf("stat %s: %w", device, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return "", fmt.Errorf("%s is not a block device", device)
	}
	return fmt.Sprintf("%d:%d", unix.Major(stat.Rdev), unix.Minor(stat.Rdev)), nil
}
