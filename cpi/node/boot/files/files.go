//go:build linux

// Package files writes files and directories that a later start of a VM needs.
//
// After a power failure, a renamed file may be empty, unless its content was synced before the rename.
package files

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/system"
)

// RenameSynced syncs a file or a directory, and renames it in the same directory. It replaces a file, but not a directory that has files.
func RenameSynced(sys system.System, from, to string) error {
	if err := syncAll(sys, from); err != nil {
		return err
	}
	if err := sys.Rename(from, to); err != nil {
		return err
	}
	return sys.SyncPath(filepath.Dir(to))
}

// syncAll syncs a file, or all files of the filesystem of a directory.
func syncAll(sys system.System, path string) error {
	directory, err := IsDirectory(sys, path)
	if err != nil {
		return err
	}
	if !directory {
		return sys.SyncPath(path)
	}
	file, err := sys.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.SyncFilesystem()
}

// Update replaces the content of a file. It keeps a file that already has this content: this also works on a full disk, and saves a sync.
func Update(sys system.System, path string, content []byte, mode fs.FileMode) error {
	existing, err := sys.ReadFile(path)
	if err == nil && bytes.Equal(existing, content) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := sys.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	next := path + ".new"
	if err := sys.Remove(next); err != nil {
		return err
	}
	if err := sys.WriteFile(next, content, mode); err != nil {
		return err
	}
	if err := sys.Chmod(next, mode); err != nil { // regardless of the umask
		return err
	}
	return RenameSynced(sys, next, path)
}

// UpdateLink makes a path a symbolic link to the target. It replaces any file, but no directory.
func UpdateLink(sys system.System, target, path string) error {
	existing, err := sys.Readlink(path)
	if err == nil && existing == target {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EINVAL) { // EINVAL: not a link
		return err
	}
	next := path + ".new"
	if err := sys.Remove(next); err != nil {
		return err
	}
	if err := sys.Symlink(target, next); err != nil {
		return err
	}
	return sys.Rename(next, path)
}

// IsDirectory reports whether a path is a directory, or a link to one.
func IsDirectory(sys system.System, path string) (bool, error) {
	return hasType(sys, path, unix.S_IFDIR)
}

// IsDevice reports whether a path is a block device, or a link to one.
func IsDevice(sys system.System, path string) (bool, error) { return hasType(sys, path, unix.S_IFBLK) }

// hasType is false without an error if the path, or a directory on the way to it, does not exist.
func hasType(sys system.System, path string, fileType uint32) (bool, error) {
	stat, err := Find(sys, path)
	return stat != nil && stat.Mode&unix.S_IFMT == fileType, err
}

// IsExecutable reports whether a path is a program, or a link to one.
func IsExecutable(sys system.System, path string) (bool, error) {
	stat, err := Find(sys, path)
	return stat != nil && stat.Mode&unix.S_IFMT == unix.S_IFREG && stat.Mode&0o111 != 0, err
}

// Find returns the state of a file, or nil if it does not exist. It follows links.
func Find(sys system.System, path string) (*unix.Stat_t, error) {
	stat, err := sys.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &stat, nil
}

// Read returns the content of a file, or nil if it does not exist.
func Read(sys system.System, path string) ([]byte, error) {
	content, err := sys.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case content == nil:
		return []byte{}, nil
	}
	return content, nil
}

// Mode returns the permissions of a file for [system.System.Chmod], including the sticky bit and the like.
func Mode(stat unix.Stat_t) fs.FileMode {
	mode := fs.FileMode(stat.Mode & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{
		unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky,
	} {
		if stat.Mode&bit != 0 {
			mode |= flag
		}
	}
	return mode
}
