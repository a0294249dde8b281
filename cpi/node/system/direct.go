//go:build linux

package system

import (
	"errors"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// page is a multiple of the block size of all devices, to which direct I/O must be aligned.
const page = 4096

// ReadDirect reads exactly length bytes of a device or a file at the offset, from the storage itself: the kernel keeps old content of a
// device in memory if a filesystem on it, or another node, changed it. It uses the kernel's memory where direct I/O is not supported, for
// example in a tmpfs.
func (s System) ReadDirect(path string, offset int64, length int) ([]byte, error) {
	file, err := s.Open(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) {
		file, err = s.Open(path, os.O_RDONLY, 0)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	if offset < 0 || offset+int64(length) > size {
		return nil, &fs.PathError{Op: "read", Path: path, Err: unix.EINVAL}
	}
	start := offset &^ (page - 1)
	end := min((offset+int64(length)+page-1)&^(page-1), size)
	data := alignedBuffer(int(end - start))
	if err := file.ReadAt(data, start); err != nil {
		return nil, err
	}
	return data[offset-start:][:length], nil
}

// alignedBuffer returns a buffer that starts at a page.
func alignedBuffer(length int) []byte {
	buffer := make([]byte, length+page)
	misaligned := int(uintptr(unsafe.Pointer(unsafe.SliceData(buffer))) % page)
	return buffer[page-misaligned:][:length]
}
