//go:build linux

// Package mounts reads and changes the mounts of a VM's container.
package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/boot/files"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// Mount is a line of mountinfo: see proc_pid_mountinfo(5).
type Mount struct {
	Device string // MAJOR:MINOR of the filesystem
	Root   string // the directory of the filesystem that is mounted, for example / or /pods/volume
	Target string
}

// Mounts are the mounts of a container, in the order of mountinfo: the last one with a target hides the others.
type Mounts []Mount

// Read returns the mounts of this process.
func Read(sys system.System) (Mounts, error) {
	content, err := sys.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found Mounts
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			return nil, fmt.Errorf("/proc/self/mountinfo has the line %q", line)
		}
		target := system.UnescapeMount(fields[4])
		if sys.Root != "" {
			below, err := filepath.Rel(sys.Root, target)
			if err != nil || strings.HasPrefix(below, "..") {
				continue // in a test: outside of the root
			}
			target = filepath.Join("/", below)
		}
		found = append(found, Mount{fields[2], system.UnescapeMount(fields[3]), target})
	}
	return found, nil
}

// At returns the visible mount at exactly this path. ok is false if there is none.
func (m Mounts) At(path string) (mount Mount, ok bool) {
	for _, mount := range slices.Backward(m) {
		if mount.Target == path {
			return mount, true
		}
	}
	return Mount{}, false
}

// Is reports whether a path is a mount point.
func Is(sys system.System, path string) (bool, error) {
	mounts, err := Read(sys)
	_, ok := mounts.At(path)
	return ok, err
}

// Bind mounts a file or a directory, without the mounts below it, at another path.
func Bind(sys system.System, source, target string) error {
	return sys.Mount(source, target, "", unix.MS_BIND, "")
}

// Temporary creates an empty directory for a mount that is moved to its place later. All of them are below a directory that only root can
// change, and that is in the container, not on a volume. An earlier step that failed may have left it.
func Temporary(sys system.System, name string) (path string, err error) {
	path = filepath.Join("/bosh", name)
	return path, sys.MkdirAll(path, 0o755)
}

// Replace moves the mount at a new directory to another directory, and removes the new directory. Mounts below the directory, such as the
// service account token, stay visible.
func Replace(sys system.System, newDirectory, directory string) error {
	mounts, err := Read(sys)
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		below, found := strings.CutPrefix(mount.Target, directory+"/")
		if !found {
			continue
		}
		target := filepath.Join(newDirectory, below)
		if err := createTarget(sys, mount.Target, target); err != nil {
			return err
		}
		if err := Bind(sys, mount.Target, target); err != nil {
			return err
		}
	}
	if err := sys.Mount(newDirectory, directory, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return Discard(sys, newDirectory)
}

// createTarget creates a mount point for a file or a directory, unless it exists.
func createTarget(sys system.System, source, target string) error {
	directory, err := files.IsDirectory(sys, source)
	if err != nil {
		return err
	}
	if directory {
		return sys.MkdirAll(target, 0o755)
	}
	existing, err := files.Find(sys, target)
	if err != nil || existing != nil {
		return err
	}
	if err := sys.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return sys.WriteFile(target, nil, 0o644)
}

// Discard unmounts a directory, as soon as nothing uses it, and removes it.
func Discard(sys system.System, directory string) error {
	if err := sys.Unmount(directory, unix.MNT_DETACH); err != nil {
		return err
	}
	return sys.Remove(directory)
}

// Remount changes options of a mount, and not of its filesystem. All other options of the mount stay as they are. cleared are options such
// as unix.MS_RDONLY.
func Remount(sys system.System, path string, cleared uintptr) error {
	stat, err := sys.Statfs(path)
	if err != nil {
		return err
	}
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND)
	for option, flag := range map[int64]uintptr{
		unix.ST_RDONLY: unix.MS_RDONLY, unix.ST_NOSUID: unix.MS_NOSUID, unix.ST_NODEV: unix.MS_NODEV, unix.ST_NOEXEC: unix.MS_NOEXEC,
		unix.ST_NOATIME: unix.MS_NOATIME, unix.ST_NODIRATIME: unix.MS_NODIRATIME, unix.ST_RELATIME: unix.MS_RELATIME,
	} {
		if stat.Flags&option != 0 {
			flags |= flag
		}
	}
	return sys.Mount("", path, "", flags&^cleared, "")
}

// NotAllowed reports whether an error means that the container is not allowed to make a change of mounts, namespaces or cgroups, or that
// the kernel or the filesystem does not support it. A VM starts without such a change; any other error, for example ENOMEM, does not answer
// whether the change is possible.
func NotAllowed(err error) bool {
	for _, errno := range []error{
		fs.ErrPermission, unix.EROFS, unix.ENODEV, unix.EINVAL, unix.ENOSYS, unix.EOPNOTSUPP, unix.EBUSY,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
