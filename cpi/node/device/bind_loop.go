//go:build linux

package device

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// BindLoop binds a free loop device to an image file for which FindLoop found none. The code of an error is loop-device-unavailable.
func BindLoop(ctx context.Context, sys system.System, image string) (*Loop, error) {
	loop, err := bindLoop(ctx, sys, image)
	if err != nil {
		return nil, api.Errorf(codeUnavailable,
			"cannot create a loop device for image %s on this node: %w; check that the kernel module loop is loaded", image, err)
	}
	return loop, nil
}

func bindLoop(ctx context.Context, sys system.System, image string) (*Loop, error) {
	backing, err := sys.Open(image, unix.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	stat, err := backing.Stat()
	if err != nil {
		return nil, err
	}
	loop, err := retry(ctx, func() (*Loop, error) { return bindFree(sys, imageOf(image, stat), backing) })
	if err != nil {
		return nil, err
	}
	if err := loop.verifyOnly(); err != nil { //nolint:contextcheck // it ends soon, and must not stop halfway
		return nil, errors.Join(err, loop.Free())
	}
	return loop, nil
}

// bindFree binds the image to a loop device that is free now. The error is ErrBusy if another program takes the device first.
func bindFree(sys system.System, image imageFile, backing *system.File) (*Loop, error) {
	number, err := freeNumber(sys)
	if err != nil {
		return nil, err
	}
	loop, err := openNode(sys, "loop"+strconv.Itoa(number), image)
	if err == nil && loop == nil {
		err = errReleasing
	}
	if err != nil {
		return nil, err
	}
	if err := loop.bind(backing); err != nil {
		return nil, errors.Join(err, loop.Close())
	}
	return loop, nil
}

// freeNumber returns the number of a free loop device.
func freeNumber(sys system.System) (number int, err error) {
	const path = "/dev/loop-control"
	exists, err := sys.Exists(path)
	if err == nil && !exists {
		err = sys.Mknod(path, unix.S_IFCHR|0o600, unix.Mkdev(10, 237))
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return 0, err
	}
	control, err := sys.Open(path, unix.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer control.Close()
	err = control.Ioctl("LOOP_CTL_GET_FREE", func(descriptor int) error {
		number, err = unix.IoctlRetInt(descriptor, unix.LOOP_CTL_GET_FREE)
		return err
	})
	return number, err
}

// bind binds the device to the file, through a descriptor for writing: otherwise, the device would be read-only.
func (l *Loop) bind(backing *system.File) error {
	writable, err := l.sys.Open(l.path, unix.O_RDWR, 0)
	if gone(err) {
		return fmt.Errorf("%w: %w", errReleasing, err)
	} else if err != nil {
		return err
	}
	defer writable.Close()
	err = writable.Ioctl("LOOP_SET_FD", func(descriptor int) error {
		return unix.IoctlSetInt(descriptor, unix.LOOP_SET_FD, int(backing.Fd()))
	})
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	} else if err != nil {
		return err
	}
	// Some filesystems do not support direct I/O. Without it, the page cache has the content twice.
	_ = writable.Ioctl("LOOP_SET_DIRECT_IO", func(descriptor int) error {
		return unix.IoctlSetInt(descriptor, unix.LOOP_SET_DIRECT_IO, 1)
	})
	return nil
}

// verifyOnly returns an error unless the new device is the only one of its image. Another attachment may have bound one at the same time:
// whichever returns last from LOOP_SET_FD finds the other device.
func (l *Loop) verifyOnly() error {
	loops, err := scan(l.sys, l.image)
	if err != nil {
		return err
	}
	for _, other := range loops {
		if other.numbers != l.numbers {
			err = fmt.Errorf("%s was bound to it at the same time", other.path)
		}
	}
	return errors.Join(err, closeAll(loops), l.Verify())
}
