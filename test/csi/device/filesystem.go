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

// Filesystems are those that Format can make, the first by default.
var Filesystems = []string{"ext4", "xfs"}

// ErrOtherContent is the error for a device that holds something else than what was asked for.
var ErrOtherContent = errors.New("holds something else")

// Format makes a filesystem on a blank device and leaves it alone when it has that filesystem.
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
		err = fmt.Errorf("no filesystem %q can be made", filesystem)
	}
	return err
}

// probe returns the type of filesystem or else of partition table; empty for a blank device.
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

// GrowUnmounted makes the filesystem as large as its device where that needs no mount.
func GrowUnmounted(ctx context.Context, device, filesystem string) error {
	if filesystem != "ext4" {
		return nil
	}
	smaller, err := hasUnusedSpace(ctx, device)
	if err != nil || !smaller {
		return err
	}
	// resize2fs(8) wants a check first; 1 is the exit code of e2fsck(8) for errors that it corrected.
	_, err = run(ctx, "e2fsck", "-f", "-p", device)
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		return err
	}
	_, err = run(ctx, "resize2fs", device)
	return err
}

// hasUnusedSpace says whether an ext4 filesystem leaves a block or more of its device unused.
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

// mayResize says whether the kernel lets this process resize a mounted ext4: EXT4_IOC_RESIZE_FS wants
// CAP_SYS_RESOURCE, which machines without it for root can only do without.
func mayResize() (bool, error) {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, err
	}
	_, after, _ := strings.Cut(string(raw), "\nCapEff:")
	text, _, _ := strings.Cut(after, "\n")
	capabilities, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
	return capabilities&(1<<unix.CAP_SYS_RESOURCE) != 0, err
}

func growExt4(ctx context.Context, device string) error {
	smaller, err := hasUnusedSpace(ctx, device)
	if err != nil || !smaller {
		return err
	}
	may, err := mayResize()
	if err != nil {
		return err
	}
	if !may {
		return fmt.Errorf("%s %w: without CAP_SYS_RESOURCE its ext4 can only grow when it is not mounted", device, ErrInUse)
	}
	_, err = run(ctx, "resize2fs", device)
	return err
}

// Grow makes the mounted filesystem as large as its device.
func Grow(ctx context.Context, device string, mounted MountEntry) error {
	var err error
	switch mounted.Type {
	case "ext4":
		err = growExt4(ctx, device)
	case "xfs":
		_, err = run(ctx, "xfs_growfs", mounted.Point)
	default:
		err = fmt.Errorf("no filesystem %q can be grown", mounted.Type)
	}
	return err
}
