//go:build linux

package filesystem

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"bosh-kubernetes-cpi/cpi/node/system"
)

// Content is what is on a device. It is blank, has a known type, or is unknown data.
type Content struct {
	Info  // of a filesystem, a partition table, or a part of a volume group; without a Type if the data is unknown
	Blank bool
}

// IsUnknown reports whether there is data, but not of a known type.
func (c Content) IsUnknown() bool { return !c.Blank && c.Type == "" }

// Exit statuses of blkid -p; see blkid(8).
const (
	blkidNothing   = 2
	blkidAmbiguous = 8
)

// Inspect returns what is on a device. The content is only known if blkid knows it, and only blank if blkid finds nothing and the first
// MiB is zero: the superblocks of some types are at the end of a device. blkid also finds the types that replaced an ext4 or XFS
// filesystem and kept its superblock, for example those of encrypted devices.
func Inspect(ctx context.Context, sys system.System, path string) (Content, error) {
	kind, err := probe(ctx, sys, path)
	if err != nil {
		return Content{}, err
	}
	info, err := Identify(sys, path)
	if err != nil && !errors.Is(err, ErrUnknown) {
		return Content{}, err
	}
	if kind.known == "" && !kind.ambiguous && err != nil {
		blank, err := isBlank(sys, path)
		return Content{Blank: blank}, err
	}
	if info.Type != kind.known {
		info = Info{Type: kind.known}
	}
	return Content{Info: info}, nil
}

type kind struct {
	known     string // the type, or empty
	ambiguous bool   // the data has signs of several types
}

// probe returns what blkid finds on the device.
func probe(ctx context.Context, sys system.System, path string) (kind, error) {
	output, err := sys.Run(ctx, "blkid", "-p", "-o", "export", sys.Path(path))
	if err != nil {
		return kind{}, err
	}
	switch output.Status {
	case 0:
		return kind{known: parseType(output.Stdout)}, nil // which may be empty
	case blkidNothing:
		if output.Stderr != "" { // it could not read the device
			break
		}
		return kind{}, nil
	case blkidAmbiguous:
		return kind{ambiguous: true}, nil
	}
	return kind{}, fmt.Errorf("cannot inspect %s: blkid failed with exit status %d: %s", path, output.Status, output.Stderr)
}

// parseType returns the type in the output of blkid: of a filesystem or of a partition table. It returns "" if blkid only reports that the
// device is a partition.
func parseType(output string) string {
	values, found := map[string]string{}, false
	for line := range strings.Lines(output) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = value
		found = found || key != "" && key != "DEVNAME" && !strings.HasPrefix(key, "PART_ENTRY_")
	}
	if !found && len(values) > 0 {
		return ""
	}
	for _, key := range []string{"TYPE", "PTTYPE"} {
		if values[key] != "" {
			return values[key]
		}
	}
	return "other"
}

// isBlank reports whether the first MiB of the device is zero.
func isBlank(sys system.System, path string) (bool, error) {
	content, err := sys.ReadDirect(path, 0, mib)
	return err == nil && isZero(content), err
}
