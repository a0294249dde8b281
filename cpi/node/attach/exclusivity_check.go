//go:build linux

package attach

import (
	"context"
	"errors"
	"log/slog"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/device"
	"bosh-kubernetes-cpi/cpi/node/lock"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// ErrNotPublished is the error of a check if the attachment may be about to publish the disk, for example after a reboot of the node. The
// exit status is api.ExitNotPublished.
var ErrNotPublished = errors.New("has not published it yet")

// Check is the exclusivity check: it checks that no process of the VM has the device open, opens it exclusively, and removes its node while
// it is open. It retries for a few seconds, because programs such as udev open new devices for a moment, and for longer if no user is
// visible. If the disk is in use, the message has only its users, one per line; the CPI adds the rest.
//
// The device is /dev/volume or the loop device of /volume/disk.img, no matter what node the VM has in its directory. In a container without
// the disk's volume, it is the device of that node, and Check frees no loop device, because it cannot know to which image it belongs.
func Check(ctx context.Context, sys system.System, disk api.Disk) error {
	a := newAttachment(sys, disk)
	var numbers *device.Numbers
	err := attempt(ctx, func() (err error) {
		numbers, err = a.publishedNumbers()
		return err
	})
	if err != nil {
		return err
	}
	checked, err := a.openPublished(numbers) //nolint:contextcheck // it ends soon, and must not stop halfway
	if err != nil {
		return err
	}
	defer checked.close()
	running, err := a.removeNode(ctx, checked)
	if err != nil || running || checked.loop == nil { // a running attachment frees it itself
		return err
	}
	if err := attempt(ctx, checked.loop.Free); err != nil { // the VM no longer has the disk: the check passed
		slog.Warn("cannot free the loop device", "disk", disk.CID, "cause", err)
	}
	return nil
}

// removeNode removes the node while the device is open exclusively, and reports whether the attachment runs. A device without a visible
// user is usually free soon: the kernel writes the data of a filesystem after its mount is gone, and recovers a journal before it mounts.
func (a attachment) removeNode(ctx context.Context, checked checkedDevice) (running bool, err error) {
	for round := 1; ; round++ {
		err = attempt(ctx, func() error { // nothing changes if any of this fails
			return checked.whileFree(a, func() (err error) {
				if running, err = lock.Held(a.sys, a.lock); err != nil {
					return err
				}
				return a.sys.Remove(a.node)
			})
		})
		if !errors.Is(err, device.ErrBusy) {
			return running, err
		}
		users, err := a.users(checked.numbers)
		if err != nil {
			return false, err
		}
		if len(users) > 0 || round == roundsWithoutUsers || ctx.Err() != nil {
			return false, api.Errorf("disk-in-use", "%s", describe(users)).With(users)
		}
	}
}

// roundsWithoutUsers is the number of rounds of attempts, about 3 s each, while no program is seen that uses the device.
const roundsWithoutUsers = 10

// publishedNumbers returns the numbers of the device node. The result is nil if there is no node although the attachment holds its lock: an
// earlier check removed the node, or root in the VM did, because the attachment takes the lock after it publishes the disk. The lock is
// therefore read first.
func (a attachment) publishedNumbers() (*device.Numbers, error) {
	held, err := lock.Held(a.sys, a.lock)
	if err != nil {
		return nil, err
	}
	numbers, err := device.NumbersOf(a.sys, a.node)
	switch {
	case err == nil:
		return &numbers, nil
	case !errors.Is(err, device.ErrNotDevice):
		return nil, err
	case held:
		return nil, nil //nolint:nilnil // documented
	}
	return nil, api.Errorf("disk-not-published", "the attachment of disk %s %w", a.disk.CID, ErrNotPublished)
}

// checkedDevice is the device that a check opens.
type checkedDevice struct {
	path    string // or "" if the image has no loop device any more, or this container has no volume and no node: then nothing can use it
	numbers device.Numbers
	loop    *device.Loop // or nil
}

func (c checkedDevice) close() {
	if c.loop != nil {
		_ = c.loop.Close()
	}
}

func (c checkedDevice) whileFree(a attachment, do func() error) error {
	if c.path == "" {
		return do()
	}
	return a.whileFree(c.path, c.numbers, do)
}

// openPublished returns the device of the disk, which the VM has as the node with these numbers; nil without a node.
func (a attachment) openPublished(numbers *device.Numbers) (checkedDevice, error) {
	own, err := device.NumbersOf(a.sys, blockVolume)
	if err == nil {
		return checkedDevice{path: blockVolume, numbers: own}, nil
	} else if !errors.Is(err, device.ErrNotDevice) {
		return checkedDevice{}, err
	}
	exists, err := a.sys.Exists(image)
	if err != nil {
		return checkedDevice{}, err
	}
	if exists {
		return a.openLoop(numbers)
	}
	if numbers == nil {
		return checkedDevice{}, nil
	}
	// The node in the VM's directory may not be usable, because that directory may be on a filesystem that is mounted with nodev.
	const path = "/dev/bosh-disk"
	return checkedDevice{path: path, numbers: *numbers}, device.EnsureNode(a.sys, path, *numbers)
}

// openLoop returns the loop device of the image. It looks at other loop devices only if the node is another device, because their images
// may be on storage that does not respond.
func (a attachment) openLoop(numbers *device.Numbers) (checkedDevice, error) {
	var loop *device.Loop
	var err error
	if numbers != nil {
		loop, err = device.LoopAt(a.sys, *numbers, image)
	}
	if err == nil && loop == nil {
		loop, err = device.FindLoop(a.sys, image)
	}
	if err != nil || loop == nil {
		return checkedDevice{}, err
	}
	return checkedDevice{path: loop.Path(), numbers: loop.Numbers(), loop: loop}, nil
}
