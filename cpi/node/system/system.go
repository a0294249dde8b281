//go:build linux

// Package system is how the programs on nodes call the kernel and run other programs.
//
// Each method reads one property of the system, or makes one change. An incomplete answer does not count as one: a method either returns
// what the kernel said, or an error with its errno. Which errors mean "gone" is decided where the answer is used, for example by [Gone].
package system

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// System is the node or the container in which a program runs.
type System struct {
	// Root is the directory that replaces / in tests.
	Root string
	// Before, if set, is called before each system call, with its name and its path. If it returns an error, the call fails with it.
	// Tests let every call fail in turn.
	Before func(call, path string) error
}

// Path returns the path of the file in this process. Programs that are run need it; all methods already use it.
func (s System) Path(path string) string { return filepath.Join(s.Root, path) }

// call makes a system call, and repeats it while a signal interrupts it. do gets the path in this process.
func (s System) call(name, path string, do func(path string) error) error {
	for {
		err := s.try(name, path, do)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errno, ok := errors.AsType[unix.Errno](err); ok {
			return &fs.PathError{Op: name, Path: path, Err: errno}
		}
		return err
	}
}

func (s System) try(name, path string, do func(path string) error) error {
	if s.Before != nil {
		if err := s.Before(name, path); err != nil {
			return err
		}
	}
	return do(s.Path(path))
}

// ask is call for system calls with a result.
func ask[T any](s System, name, path string, do func(path string) (T, error)) (result T, err error) {
	err = s.call(name, path, func(path string) error {
		result, err = do(path)
		return err
	})
	return result, err
}

// Gone reports whether an error means that a file does not exist, or that the process of a file in /proc exited.
func Gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// ReadFile returns the content of a file.
func (s System) ReadFile(path string) ([]byte, error) { return ask(s, "read", path, os.ReadFile) }

// WriteFile replaces the content of a file, or creates it. After a power failure, it may be empty.
func (s System) WriteFile(path string, content []byte, mode fs.FileMode) error {
	return s.call("write", path, func(path string) error { return os.WriteFile(path, content, mode) })
}

// ReadDir returns the sorted names of the files in a directory.
func (s System) ReadDir(path string) ([]string, error) {
	entries, err := ask(s, "readdir", path, os.ReadDir)
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names, err
}

// Readlink returns the target of a symbolic link.
func (s System) Readlink(path string) (string, error) { return ask(s, "readlink", path, os.Readlink) }

// EvalSymlinks returns the path in this process without symbolic links, unlike the paths of other methods.
func (s System) EvalSymlinks(path string) (string, error) {
	return ask(s, "readlink", path, filepath.EvalSymlinks)
}

// Stat returns the state of a file, and follows links.
func (s System) Stat(path string) (unix.Stat_t, error) {
	return ask(s, "stat", path, func(path string) (stat unix.Stat_t, err error) {
		err = unix.Stat(path, &stat)
		return stat, err
	})
}

// Lstat returns the state of a file, and does not follow links.
func (s System) Lstat(path string) (unix.Stat_t, error) {
	return ask(s, "lstat", path, func(path string) (stat unix.Stat_t, err error) {
		err = unix.Lstat(path, &stat)
		return stat, err
	})
}

// Exists reports whether there is a file, of any type.
func (s System) Exists(path string) (bool, error) {
	_, err := s.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Statfs returns the state of the filesystem of a file.
func (s System) Statfs(path string) (unix.Statfs_t, error) {
	return ask(s, "statfs", path, func(path string) (stat unix.Statfs_t, err error) {
		err = unix.Statfs(path, &stat)
		return stat, err
	})
}

// Mkdir creates a directory.
func (s System) Mkdir(path string, mode fs.FileMode) error {
	return s.call("mkdir", path, func(path string) error { return os.Mkdir(path, mode) })
}

// MkdirAll creates a directory and its parents, unless they exist.
func (s System) MkdirAll(path string, mode fs.FileMode) error {
	return s.call("mkdir", path, func(path string) error { return os.MkdirAll(path, mode) })
}

// Remove removes a file or an empty directory. It succeeds if the file does not exist.
func (s System) Remove(path string) error {
	err := s.call("remove", path, os.Remove)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// RemoveAll removes a file, or a directory with its content.
func (s System) RemoveAll(path string) error { return s.call("remove", path, os.RemoveAll) }

// Rename replaces the file at newPath.
func (s System) Rename(oldPath, newPath string) error {
	return s.call("rename", oldPath, func(path string) error { return unix.Rename(path, s.Path(newPath)) })
}

// Symlink creates a symbolic link.
func (s System) Symlink(target, path string) error {
	return s.call("symlink", path, func(path string) error { return os.Symlink(target, path) })
}

// Chmod changes the mode of a file.
func (s System) Chmod(path string, mode fs.FileMode) error {
	return s.call("chmod", path, func(path string) error { return os.Chmod(path, mode) })
}

// Chown changes the owner of a file.
func (s System) Chown(path string, uid, gid int) error {
	return s.call("chown", path, func(path string) error { return os.Chown(path, uid, gid) })
}

// umask serializes changes of the umask, which all threads share.
var umask sync.Mutex

// Mknod creates a device node with exactly this mode. A later chmod would follow a link that another process puts at the path.
func (s System) Mknod(path string, mode uint32, device uint64) error {
	return s.call("mknod", path, func(path string) error {
		umask.Lock()
		defer umask.Unlock()
		defer unix.Umask(unix.Umask(0))
		return unix.Mknod(path, mode, int(device)) //nolint:gosec // encoded by the kernel
	})
}

// Mount mounts a filesystem. source is a path of this system if it starts with a slash.
func (s System) Mount(source, target, filesystem string, flags uintptr, data string) error {
	if filepath.IsAbs(source) {
		source = s.Path(source)
	}
	return s.call("mount", target, func(path string) error { return unix.Mount(source, path, filesystem, flags, data) })
}

// Unmount unmounts a filesystem.
func (s System) Unmount(target string, flags int) error {
	return s.call("umount", target, func(path string) error { return unix.Unmount(path, flags) })
}

var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")

// UnescapeMount returns a path in mountinfo without the escapes of the kernel.
func UnescapeMount(path string) string { return mountEscapes.Replace(path) }

// SyncAll writes all cached data to all disks of the node: sync(2) is not limited to a mount namespace.
func (s System) SyncAll() error {
	return s.call("sync", "/", func(string) error {
		unix.Sync()
		return nil
	})
}
