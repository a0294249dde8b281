package device

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
)

// MountEntry is a line of mountinfo; see proc_pid_mountinfo(5).
type MountEntry struct {
	Number   string // of the device, major:minor
	Root     string // path of the mounted directory in the filesystem
	Point    string
	Type     string
	ReadOnly bool
}

// Mounts returns the mounts in the calling process's mount namespace.
func Mounts() ([]MountEntry, error) { return mounts("/proc/self/mountinfo") }

func mounts(file string) ([]MountEntry, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseMounts(string(raw)), nil
}

func parseMounts(text string) []MountEntry {
	var all []MountEntry
	for line := range strings.Lines(text) {
		mountFields, after, _ := strings.Cut(line, " - ")
		fields, rest := strings.Fields(mountFields), strings.Fields(after)
		if len(fields) < 6 || len(rest) < 1 {
			continue
		}
		all = append(all, MountEntry{
			Number: fields[2], Root: unescape(fields[3]), Point: unescape(fields[4]), Type: rest[0],
			ReadOnly: slices.Contains(strings.Split(fields[5], ","), "ro"),
		})
	}
	return all
}

// unescape replaces octal escapes such as \040 with the character.
func unescape(text string) string {
	var plain strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if code, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				plain.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		plain.WriteByte(text[i])
	}
	return plain.String()
}

// MountAt returns the mount at the path, the topmost one if there are several.
func MountAt(path string) (MountEntry, bool, error) {
	all, err := Mounts()
	if err != nil {
		return MountEntry{}, false, err
	}
	for _, entry := range slices.Backward(all) {
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
func Bind(ctx context.Context, source, path string, readOnly bool) error {
	if _, err := run(ctx, "mount", "--bind", source, path); err != nil || !readOnly {
		return err
	}
	if _, err := run(ctx, "mount", "-o", "remount,bind,ro", path); err != nil {
		return errors.Join(err, Unmount(ctx, path))
	}
	return nil
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
