package device

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
)

// MountEntry is a line of mountinfo; see proc_pid_mountinfo(5).
type MountEntry struct {
	Number string // major:minor of the device
	Point  string // mount point
	Type   string
}

func mounts(file string) ([]MountEntry, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseMounts(string(raw)), nil
}

func parseMounts(mountinfo string) []MountEntry {
	var entries []MountEntry
	for line := range strings.Lines(mountinfo) {
		mountFields, after, _ := strings.Cut(line, " - ")
		fields, rest := strings.Fields(mountFields), strings.Fields(after)
		if len(fields) < 6 || len(rest) < 1 {
			continue
		}
		entries = append(entries, MountEntry{Number: fields[2], Point: unescape(fields[4]), Type: rest[0]})
	}
	return entries
}

// unescape replaces octal escapes such as \040 with the character.
func unescape(s string) string {
	var unescaped strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if code, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				unescaped.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		unescaped.WriteByte(s[i])
	}
	return unescaped.String()
}

// MountAt returns the mount at the path, the topmost one if there are several.
func MountAt(path string) (MountEntry, bool, error) {
	entries, err := mounts("/proc/self/mountinfo")
	if err != nil {
		return MountEntry{}, false, err
	}
	for _, entry := range slices.Backward(entries) {
		if entry.Point == path {
			return entry, true, nil
		}
	}
	return MountEntry{}, false, nil
}

// Mount mounts a filesystem.
func Mount(ctx context.Context, source, path, filesystem string, options []string) error {
	args := []string{"-t", filesystem}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	_, err := run(ctx, "mount", append(args, source, path)...)
	return err
}

// Bind creates a bind mount of a directory or a device node.
func Bind(ctx context.Context, source, path string) error {
	_, err := run(ctx, "mount", "--bind", source, path)
	return err
}

// Unmount removes all mounts at the path, if there are any.
func Unmount(ctx context.Context, path string) error {
	for {
		_, found, err := MountAt(path)
		if err != nil || !found {
			return err
		}
		if _, err := run(ctx, "umount", path); err != nil {
			return err
		}
	}
}
