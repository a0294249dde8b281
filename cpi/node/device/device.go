//go:build linux

// Package device identifies, opens and publishes block devices, and binds loop devices to image files.
package device

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/system"
)

var (
	// ErrNotDevice is the error for a path that is not a block device, or does not exist.
	ErrNotDevice = errors.New("not a block device")
	// ErrBusy is the error if a filesystem on the device is mounted in any mount namespace, or a program has the device open exclusively.
	ErrBusy = errors.New("the device is in use")
	// ErrGone is the error if the device does not exist any more, for example after a lost iSCSI session. Nothing can write to it.
	ErrGone = errors.New("the device is gone")
)

// gone reports whether the error of an open means that the device does not exist any more. With any other error, the device may be in use.
func gone(err error) bool {
	return errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOMEDIUM)
}

// Numbers identifies a block device of the node.
type Numbers struct{ Major, Minor uint32 }

// Dev returns the numbers as in stat(2).
func (n Numbers) Dev() uint64 { return unix.Mkdev(n.Major, n.Minor) }

func (n Numbers) String() string { return fmt.Sprintf("%d:%d", n.Major, n.Minor) }

// NumbersOf returns the numbers of the block device at the path, and follows links. The error is ErrNotDevice if there is none.
func NumbersOf(sys system.System, path string) (Numbers, error) {
	stat, err := sys.Stat(path)
	switch {
	case errors.Is(err, unix.ENOENT), err == nil && stat.Mode&unix.S_IFMT != unix.S_IFBLK:
		return Numbers{}, fmt.Errorf("%s: %w", path, ErrNotDevice)
	case err != nil:
		return Numbers{}, err
	}
	return Numbers{unix.Major(stat.Rdev), unix.Minor(stat.Rdev)}, nil
}

// OpenExclusive opens the device with O_EXCL, as mount(2) does, for reading and writing. While it is open, nothing can mount the device.
// The error is ErrBusy, ErrGone or ErrNotDevice; after any other error, the device may be in use. A program that has the device open
// without O_EXCL is not detected.
func OpenExclusive(sys system.System, path string) (*system.File, error) {
	return openExclusive(sys, path, unix.O_RDWR)
}

// Claim is like OpenExclusive, but also opens a write-protected device, for reading.
func Claim(sys system.System, path string) (*system.File, error) {
	file, err := openExclusive(sys, path, unix.O_RDWR)
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
		return openExclusive(sys, path, unix.O_RDONLY)
	}
	return file, err
}

func openExclusive(sys system.System, path string, access int) (*system.File, error) {
	file, err := sys.Open(path, access|unix.O_EXCL, 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	case gone(err):
		return nil, fmt.Errorf("%w: %w", ErrGone, err)
	case err != nil:
		return nil, err
	}
	stat, err := file.Stat() // O_EXCL has no effect on other files
	if err == nil && stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		err = fmt.Errorf("%s: %w", path, ErrNotDevice)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Publish makes path a node of the device, which its owner and group can use. It creates the node under another name and renames it, so
// that a node at the path is always usable, and replaces an earlier one.
func Publish(sys system.System, path string, numbers Numbers) error {
	if err := sys.Remove(path + ".new"); err != nil {
		return err
	}
	if err := sys.Mknod(path+".new", unix.S_IFBLK|0o660, numbers.Dev()); err != nil {
		return err
	}
	return sys.Rename(path+".new", path)
}

// EnsureNode creates the node of a device in this container's /dev unless it exists. A container's /dev has no nodes for devices that were
// created after the container.
func EnsureNode(sys system.System, path string, numbers Numbers) error {
	existing, err := NumbersOf(sys, path)
	if errors.Is(err, ErrNotDevice) {
		err = sys.Mknod(path, unix.S_IFBLK|0o660, numbers.Dev())
		if err == nil || !errors.Is(err, unix.EEXIST) {
			return err
		}
		existing, err = NumbersOf(sys, path) // created by another program
	}
	if err == nil && existing != numbers {
		err = fmt.Errorf("%s is device %s instead of %s", path, existing, numbers)
	}
	return err
}
