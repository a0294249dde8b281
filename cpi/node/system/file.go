//go:build linux

package system

import (
	"io"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A File is an open file or device.
type File struct {
	*os.File
	system System
	path   string
}

// Open opens a file, for example with unix.O_RDWR|unix.O_EXCL. Programs that are run do not inherit it.
func (s System) Open(path string, flags int, mode fs.FileMode) (*File, error) {
	file, err := ask(s, "open", path, func(path string) (*os.File, error) { return os.OpenFile(path, flags|unix.O_CLOEXEC, mode) })
	if err != nil {
		return nil, err
	}
	return &File{file, s, path}, nil
}

// ReadAt reads exactly len(data) bytes at the offset, or fails.
func (f *File) ReadAt(data []byte, offset int64) error {
	return f.call("read", func() error {
		_, err := f.File.ReadAt(data, offset)
		return err
	})
}

// WriteAt writes the data at the offset.
func (f *File) WriteAt(data []byte, offset int64) error {
	return f.call("write", func() error {
		_, err := f.File.WriteAt(data, offset)
		return err
	})
}

// Sync writes the content of the file to its storage.
func (f *File) Sync() error { return f.call("fsync", f.File.Sync) }

// SyncPath writes the content of a file, or the names of the files in a directory, to its storage.
func (s System) SyncPath(path string) error {
	file, err := s.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}

// SyncFilesystem writes all files of the filesystem to its storage.
func (f *File) SyncFilesystem() error {
	return f.call("syncfs", func() error { return unix.Syncfs(int(f.Fd())) })
}

// Stat returns the state of the file.
func (f *File) Stat() (stat unix.Stat_t, err error) {
	err = f.call("fstat", func() error { return unix.Fstat(int(f.Fd()), &stat) })
	return stat, err
}

// Truncate sets the size of the file.
func (f *File) Truncate(size int64) error {
	return f.call("truncate", func() error { return f.File.Truncate(size) })
}

// Allocate allocates space for the first bytes of the file.
func (f *File) Allocate(size int64) error {
	return f.call("fallocate", func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
}

// Size returns the size of a device or a file in bytes.
func (f *File) Size() (size int64, err error) {
	err = f.call("seek", func() error {
		size, err = f.Seek(0, io.SeekEnd)
		return err
	})
	return size, err
}

// Lock locks the file with flock(2): unix.LOCK_EX or unix.LOCK_SH, with unix.LOCK_NB.
func (f *File) Lock(how int) error {
	return f.call("flock", func() error { return unix.Flock(int(f.Fd()), how) })
}

// Discard returns all blocks of a device to its storage. The error is EOPNOTSUPP if the storage does not support that.
func (f *File) Discard() error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	return f.call("discard", func() error {
		all := [2]uint64{0, uint64(size)}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.BLKDISCARD, uintptr(unsafe.Pointer(&all))) //nolint:gosec // ioctl(2)
		if errno != 0 {
			return errno
		}
		return nil
	})
}

// Ioctl makes an ioctl(2) on the file; do gets its descriptor.
func (f *File) Ioctl(name string, do func(descriptor int) error) error {
	return f.call(name, func() error { return do(int(f.Fd())) })
}

func (f *File) call(name string, do func() error) error {
	return f.system.call(name, f.path, func(string) error { return do() })
}
