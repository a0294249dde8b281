package device

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Filesystems are those that Format can make, the first by default.
var Filesystems = []string{"ext4", "xfs"}

// ErrOther is the error for a device that holds something else than what was asked for.
var ErrOther = errors.New("holds something else")

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
		return fmt.Errorf("%s %w: %s, not %s", device, ErrOther, content, filesystem)
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

// probe answers the type of filesystem or else of partition table; empty for a blank device.
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

// Grow makes the mounted filesystem as large as its device.
func Grow(ctx context.Context, device string, mounted Mounted) error {
	var err error
	switch mounted.Type {
	case "ext4":
		_, err = run(ctx, "resize2fs", device)
	case "xfs":
		_, err = run(ctx, "xfs_growfs", mounted.Point)
	default:
		err = fmt.Errorf("no filesystem %q can be grown", mounted.Type)
	}
	return err
}
