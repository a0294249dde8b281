package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Filesystems are the filesystems that Format can create. The first is the default.
var Filesystems = []string{"ext4", "xfs"}

// ErrOtherContent means that a device contains something other than the requested filesystem.
var ErrOtherContent = errors.New("has other content")

// Format creates a filesystem on a blank device. It does nothing if the device has this filesystem.
func Format(ctx context.Context, device, filesystem string) error {
	content, err := probe(ctx, device)
	if err != nil {
		return err
	}
	switch content {
	case filesystem:
		return nil
	case "":
	default:
		return fmt.Errorf("%s %w: %s, not %s", device, ErrOtherContent, content, filesystem)
	}
	switch filesystem {
	case "ext4":
		_, err = run(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", device)
	case "xfs":
		_, err = run(ctx, "mkfs.xfs", "-q", "-f", device)
	default:
		err = fmt.Errorf("cannot create filesystem %q", filesystem)
	}
	return err
}

// probe returns the type of the filesystem or of the partition table, or "" for a blank device.
func probe(ctx context.Context, device string) (string, error) {
	for _, tag := range []string{"TYPE", "PTTYPE"} {
		out, err := run(ctx, "blkid", "--probe", "--output", "value", "--match-tag", tag, device)
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 2 {
			continue // blkid(8): the tag was not found
		}
		if err != nil || strings.TrimSpace(out) != "" {
			return strings.TrimSpace(out), err
		}
	}
	return "", nil
}

// GrowUnmounted grows the unmounted filesystem to the size of its device. It does nothing if the filesystem can only grow mounted.
func GrowUnmounted(ctx context.Context, device, filesystem string) error {
	if filesystem != "ext4" {
		return nil
	}
	unused, err := hasUnusedSpace(ctx, device)
	if err != nil || !unused {
		return err
	}
	// resize2fs(8) requires a check first. e2fsck(8) exits with 1 if it corrected errors.
	_, err = run(ctx, "e2fsck", "-f", "-p", device)
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		return err
	}
	_, err = run(ctx, "resize2fs", device)
	return err
}

// hasUnusedSpace reports whether an ext4 filesystem leaves at least a block of its device unused.
func hasUnusedSpace(ctx context.Context, device string) (bool, error) {
	out, err := run(ctx, "dumpe2fs", "-h", device)
	if err != nil {
		return false, err
	}
	values := map[string]int64{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(line, ":")
		if number, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil {
			values[name] = number
		}
	}
	size, err := Size(ctx, device)
	return values["Block size"]*(values["Block count"]+1) <= size, err
}

// canResizeMounted reports whether the process may resize a mounted ext4. EXT4_IOC_RESIZE_FS requires CAP_SYS_RESOURCE, which root
// lacks on some hosts.
func canResizeMounted() (bool, error) {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, err
	}
	_, after, _ := strings.Cut(string(raw), "\nCapEff:")
	bitmask, _, _ := strings.Cut(after, "\n")
	capabilities, err := strconv.ParseUint(strings.TrimSpace(bitmask), 16, 64)
	return capabilities&(1<<unix.CAP_SYS_RESOURCE) != 0, err
}

func growExt4(ctx context.Context, device string) error {
	unused, err := hasUnusedSpace(ctx, device)
	if err != nil || !unused {
		return err
	}
	allowed, err := canResizeMounted()
	if err != nil {
		return err
	}
	if !allowed {
		return fmt.Errorf("%s %w: growing a mounted ext4 requires CAP_SYS_RESOURCE", device, ErrInUse)
	}
	_, err = run(ctx, "resize2fs", device)
	return err
}

// Grow grows the mounted filesystem to the size of its device.
func Grow(ctx context.Context, device string, mounted MountEntry) error {
	var err error
	switch mounted.Type {
	case "ext4":
		err = growExt4(ctx, device)
	case "xfs":
		_, err = run(ctx, "xfs_growfs", mounted.Point)
	default:
		err = fmt.Errorf("cannot grow filesystem %q", mounted.Type)
	}
	return err
}
