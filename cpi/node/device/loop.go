//go:build linux

package device

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// Loop is a loop device that is bound to an image file.
//
// The device stays open until Free or Close, because its number identifies it only while it is open: after the kernel frees it, the next
// image gets the number. While it is open, LOOP_CLR_FD, for example of `losetup --detach`, only marks it to be freed at its last close.
//
// The descriptor is read-only: a kernel without CONFIG_BLK_DEV_WRITE_MOUNTED does not mount a device that is open for writing.
type Loop struct {
	sys     system.System
	path    string
	numbers Numbers
	image   imageFile
	file    *system.File // nil after Free or Close
	// exclusive reports that the descriptor is exclusive, after a Free that failed.
	exclusive bool
}

// imageFile identifies an image file. Paths depend on the mount namespace.
type imageFile struct {
	path          string
	device, inode uint64
}

func imageOf(path string, stat unix.Stat_t) imageFile { return imageFile{path, stat.Dev, stat.Ino} }

const (
	codeUnavailable = "loop-device-unavailable"
	attempts        = 50
	pause           = 100 * time.Millisecond
)

// errReleasing is the error while the kernel frees a loop device: it does not report the image any more, but may still write to it. If the
// image got another loop device, both would write.
var errReleasing = errors.New("the loop device is being freed")

// retry repeats an operation while the kernel frees a loop device, or another program takes it first.
func retry[T any](ctx context.Context, do func() (T, error)) (result T, err error) {
	for range attempts {
		result, err = do()
		if !errors.Is(err, errReleasing) && !errors.Is(err, ErrBusy) {
			return result, err
		}
		if stopped := system.Pause(ctx, pause); stopped != nil {
			return result, errors.Join(err, stopped)
		}
	}
	return result, api.Errorf(codeUnavailable, "gave up after %d attempts: %w", attempts, err)
}

// open opens the loop device if it is bound to the image. The result is nil if it is not. It does not open unbound devices.
func open(sys system.System, name string, image imageFile) (*Loop, error) {
	bound, err := sys.Exists("/sys/block/" + name + "/loop")
	if err != nil || !bound {
		return nil, err
	}
	loop, err := openNode(sys, name, image)
	if loop == nil || err != nil {
		return nil, err
	}
	info, err := loop.status()
	if err != nil {
		return nil, errors.Join(err, loop.Close())
	}
	if !image.has(info) {
		return nil, loop.Close()
	}
	if info.Offset != 0 || info.Sizelimit != 0 || info.Flags&unix.LO_FLAGS_READ_ONLY != 0 {
		err := api.Errorf(codeUnavailable, "loop device %s shows image %s read-only or in part; detach it", loop.path, image.path)
		return nil, errors.Join(err, loop.Close())
	}
	return loop, nil
}

// openNode opens the loop device, no matter whether it is bound. The result is nil if the device does not exist.
func openNode(sys system.System, name string, image imageFile) (*Loop, error) {
	loop := &Loop{sys: sys, path: "/dev/" + name, image: image}
	text, err := sys.ReadFile("/sys/block/" + name + "/dev")
	if system.Gone(err) || errors.Is(err, unix.ENODEV) { // removed meanwhile
		return nil, nil //nolint:nilnil // documented
	} else if err != nil {
		return nil, err
	}
	if _, err := fmt.Sscanf(string(text), "%d:%d\n", &loop.numbers.Major, &loop.numbers.Minor); err != nil {
		return nil, fmt.Errorf("read the numbers of loop device %s in %q: %w", name, text, err)
	}
	if err := EnsureNode(sys, loop.path, loop.numbers); err != nil {
		return nil, err
	}
	loop.file, err = sys.Open(loop.path, unix.O_RDONLY, 0)
	if gone(err) {
		return nil, fmt.Errorf("%w: %w", errReleasing, err)
	}
	return loop, err
}

func (i imageFile) has(info *unix.LoopInfo64) bool {
	return info.Device == i.device && info.Inode == i.inode
}

// status returns the state of the device. The error is errReleasing if it is not bound.
func (l *Loop) status() (info *unix.LoopInfo64, err error) {
	if l.file == nil {
		return nil, fmt.Errorf("%w: %s is closed", errReleasing, l.path)
	}
	err = l.file.Ioctl("LOOP_GET_STATUS64", func(descriptor int) error {
		info, err = unix.IoctlLoopGetStatus64(descriptor)
		return err
	})
	if errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("%w: %w", errReleasing, err)
	}
	return info, err
}

// Path returns the path of the device in this container.
func (l *Loop) Path() string { return l.path }

// Numbers returns the numbers of the device, which do not change before Free or Close.
func (l *Loop) Numbers() Numbers { return l.numbers }

// Verify returns an error if the device is no longer bound to its image. If another program, such as `losetup --detach`, marked the device
// to be freed at its last close, Verify removes the mark: the device must outlive this process while its node is in a VM.
func (l *Loop) Verify() error {
	info, err := l.status()
	if err != nil {
		return fmt.Errorf("%s is not bound to %s any more: %w", l.path, l.image.path, err)
	}
	if !l.image.has(info) {
		return fmt.Errorf("%s is bound to another file than %s", l.path, l.image.path)
	}
	if info.Flags&unix.LO_FLAGS_AUTOCLEAR == 0 {
		return nil
	}
	info.Flags &^= unix.LO_FLAGS_AUTOCLEAR
	return l.file.Ioctl("LOOP_SET_STATUS64", func(descriptor int) error { return unix.IoctlLoopSetStatus64(descriptor, info) })
}

// UpdateCapacity makes the device as large as its image file.
func (l *Loop) UpdateCapacity() error {
	return l.file.Ioctl("LOOP_SET_CAPACITY", func(descriptor int) error { return unix.IoctlSetInt(descriptor, unix.LOOP_SET_CAPACITY, 0) })
}

// Free frees the device if it is still bound to its image, and closes it. The error is ErrBusy if a filesystem on it is mounted; after an
// error, Free can be called again. It waits for nothing: if a process of the node still has the device open without a mount, such as udev,
// the kernel frees the device when that process closes it. Remove its node from the VM before.
//
// The last descriptor is exclusive, so that nothing can mount the device meanwhile, and without another opener LOOP_CLR_FD also keeps
// others from opening it.
func (l *Loop) Free() error {
	info, err := l.status()
	if errors.Is(err, errReleasing) || err == nil && !l.image.has(info) {
		return l.Close() // not the device of the image any more
	} else if err != nil {
		return err
	}
	if err := l.reopenExclusive(); errors.Is(err, ErrGone) {
		return l.Close()
	} else if err != nil {
		return err
	}
	err = l.file.Ioctl("LOOP_CLR_FD", func(descriptor int) error { return unix.IoctlSetInt(descriptor, unix.LOOP_CLR_FD, 0) })
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return err
	}
	return l.Close()
}

func (l *Loop) reopenExclusive() error {
	if l.exclusive {
		return nil
	}
	exclusive, err := OpenExclusive(l.sys, l.path)
	if err != nil {
		return err
	}
	_ = l.Close() // the exclusive descriptor keeps the device now
	l.file, l.exclusive = exclusive, true
	return nil
}

// Close closes the device, and leaves it bound. It can be called again.
func (l *Loop) Close() error {
	if l.file == nil {
		return nil
	}
	file := l.file
	l.file = nil
	return file.Close()
}
