//go:build linux

// Package lock has the lock of an attachment: a file next to the disk's device node, which is locked with flock(2). The kernel releases the
// lock when the process of the attachment dies or the node reboots.
//
// The VM can create a link at the path of the lock, and the attachment has the permissions of the node's root user. The functions therefore
// do not follow links.
package lock

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/system"
)

// Lock is a lock that this process holds.
type Lock struct {
	sys  system.System
	path string
	file *system.File
}

// Take replaces the lock at the path, no matter who holds it. It renames the file when it is locked, so that nobody else can lock it first:
// Held locks the file for a moment.
func Take(sys system.System, path string) (*Lock, error) {
	created := path + ".new"
	if err := sys.Remove(created); err != nil {
		return nil, err
	}
	file, err := sys.Open(created, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = file.Lock(unix.LOCK_EX | unix.LOCK_NB)
	if err == nil {
		err = sys.Rename(created, path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close(), sys.Remove(created))
	}
	return &Lock{sys, path, file}, nil
}

// Held reports whether a process holds the lock, that is, whether an attachment is running and has published its disk.
func Held(sys system.System, path string) (bool, error) {
	file, err := sys.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	defer file.Close()
	err = file.Lock(unix.LOCK_SH | unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// IsCurrent reports whether the file at the path is still this lock. If it is not, another attachment of the same disk replaced it, and the
// device node and the loop device belong to that one.
func (l *Lock) IsCurrent() (bool, error) {
	own, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	current, err := l.sys.Lstat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && current.Dev == own.Dev && current.Ino == own.Ino, err
}

// Release closes the lock, and leaves its file.
func (l *Lock) Release() error { return l.file.Close() }
