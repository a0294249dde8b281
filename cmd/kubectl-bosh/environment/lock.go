package environment

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Lock locks the directory for `up` or `down`, until the file is closed. It fails if another process has it locked.
func (d Dir) Lock() (*os.File, error) {
	file, err := os.OpenFile(d.filePath(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	locked, err := TryLock(file)
	if err == nil && !locked {
		err = fmt.Errorf("another `kubectl bosh up` or `down` uses directory %s; wait until it ends", d.Path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// TryLock locks the file, unless a process has it locked. The lock ends with the last process that has the file open.
func TryLock(file *os.File) (locked bool, err error) {
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
