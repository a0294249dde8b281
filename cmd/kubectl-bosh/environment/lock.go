package environment

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Lock creates the directory if it does not exist, and locks it for `up` or `down`. It fails if another process has it locked. The lock
// lasts until unlock is called, and all processes that inherited the file have ended. unlock also deletes a directory without settings.
func (d Dir) Lock() (lock *os.File, unlock func(), err error) {
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return nil, nil, err
	}
	lock, err = os.OpenFile(d.filePath(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	locked, err := TryLock(lock)
	if err == nil && !locked {
		err = fmt.Errorf("another `kubectl bosh up` or `down`, or its BOSH CLI, uses directory %s; wait until it ends", d.Path)
	}
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	return lock, func() {
		if _, found, err := d.ReadSettings(); err == nil && !found {
			_ = os.Remove(lock.Name())
			_ = os.Remove(d.Path) // only if it is empty
		}
		_ = lock.Close()
	}, nil
}

// TryLock locks the file, unless a process has it locked. The lock ends with the last process that has the file open.
func TryLock(file *os.File) (locked bool, err error) {
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
