//go:build linux

package device

import (
	"context"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
)

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
		names, err := loopNames(sys)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
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

// LoopsOver returns the paths of the loop devices that show this device, for example because root in a VM ran losetup with its node. An
// exclusive open does not detect them. LoopsOver looks only at loop devices of files in /dev: other files may be on storage that does not
// respond, and the kubelet has a loop device of its own for a Block volume, below its directory.
func LoopsOver(sys system.System, numbers Numbers) (paths []string, err error) {
	names, err := loopNames(sys)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		shows, err := showsDevice(sys, name, numbers)
		if err != nil {
			return nil, err
		}
		if shows {
			paths = append(paths, "/dev/"+name)
		}
	}
	return paths, nil
}

// showsDevice reports whether the loop device shows this device by a file in /dev.
func showsDevice(sys system.System, name string, numbers Numbers) (bool, error) {
	file, err := sys.ReadFile("/sys/block/" + name + "/loop/backing_file")
	switch {
	case system.Gone(err), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO): // it is not bound
		return false, nil
	case err != nil:
		return false, err
	case !strings.HasPrefix(string(file), "/dev/"):
		return false, nil
	}
	loop, err := openNode(sys, name, imageFile{path: strings.TrimSpace(string(file))})
	if loop == nil || err != nil {
		return false, err
	}
	info, err := loop.status()
	return err == nil && info.Rdevice == numbers.Dev(), errors.Join(err, loop.Close())
}

func closeAll(loops []*Loop) (err error) {
	for _, loop := range loops {
		err = errors.Join(err, loop.Close())
	}
	return err
}

// loopNames returns the names of the node's loop devices, as in loop0, bound or not.
func loopNames(sys system.System) ([]string, error) {
	names, err := sys.ReadDir("/sys/block")
	return slices.DeleteFunc(names, func(name string) bool { return !isLoop(name) }), err
}

func isLoop(name string) bool {
	number, found := strings.CutPrefix(name, "loop")
	_, err := strconv.ParseUint(number, 10, 32)
	return found && err == nil
}
