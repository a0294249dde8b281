//go:build linux

package device

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
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

// FindLoop returns the loop device of the image file, or nil if it has none. It fails if it cannot find out: a second loop device would
// seem unused while the VM uses the first. It waits up to 5 s for loop devices that the kernel frees.
//
// It also adopts a device that is marked to be freed at its last close. The open descriptor keeps such a device, and FindLoop removes the
// mark, so that the device outlives this process like any other. A new device instead would be a second one for the same image while the
// program that has the first one open writes to it.
func FindLoop(sys system.System, image string) (*Loop, error) {
	stat, err := sys.Stat(image)
	if err != nil {
		return nil, err
	}
	loops, err := scan(sys, imageOf(image, stat))
	if err != nil {
		return nil, err
	}
	switch len(loops) {
	case 0:
		return nil, nil //nolint:nilnil // documented
	case 1:
		if err := loops[0].Verify(); err != nil {
			return nil, errors.Join(err, loops[0].Close())
		}
		return loops[0], nil
	}
	return nil, errors.Join(api.Errorf(codeUnavailable, "image %s has several loop devices: %s and %s; detach one of them", image,
		loops[0].path, loops[1].path), closeAll(loops))
}

// LoopAt returns the loop device with these numbers if it is bound to the image file, or nil.
func LoopAt(sys system.System, numbers Numbers, image string) (*Loop, error) {
	stat, err := sys.Stat(image)
	if err != nil {
		return nil, err
	}
	target, err := sys.Readlink("/sys/dev/block/" + numbers.String())
	if system.Gone(err) {
		return nil, nil //nolint:nilnil // documented
	} else if err != nil {
		return nil, err
	}
	name := path.Base(target)
	if !isLoop(name) {
		return nil, nil //nolint:nilnil // documented
	}
	return retry(context.Background(), func() (*Loop, error) { return open(sys, name, imageOf(image, stat)) })
}

// scan returns all loop devices of the image.
func scan(sys system.System, image imageFile) ([]*Loop, error) {
	return retry(context.Background(), func() (loops []*Loop, err error) {
		names, err := sys.ReadDir("/sys/block")
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if !isLoop(name) {
				continue
			}
			loop, err := open(sys, name, image)
			if err != nil {
				return nil, errors.Join(err, closeAll(loops))
			}
			if loop != nil {
				loops = append(loops, loop)
			}
		}
		return loops, nil
	})
}

func closeAll(loops []*Loop) (err error) {
	for _, loop := range loops {
		err = errors.Join(err, loop.Close())
	}
	return err
}

func isLoop(name string) bool {
	number, found := strings.CutPrefix(name, "loop")
	_, err := strconv.ParseUint(number, 10, 32)
	return found && err == nil
}

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
