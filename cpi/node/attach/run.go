//go:build linux

package attach

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/device"
	"bosh-kubernetes-cpi/cpi/node/lock"
	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/cpi/node/volume"
)

// errReplaced is the error if another attachment of the same disk on this node took over, for example after a restore of etcd. The device
// node, the lock and the loop device belong to that one.
var errReplaced = errors.New("another attachment of the disk took over")

// Run attaches a disk to a running VM: it formats the disk if it is blank, grows its filesystem to the size of the volume, and publishes
// the device node. All of these steps are idempotent. When the context ends, it waits until nothing uses the device, and unpublishes it:
// until then, the disk must not be attached to another VM. A stop during publishing takes effect after it.
func Run(ctx context.Context, sys system.System, disk api.Disk) error {
	a := newAttachment(sys, disk)
	sys.LowerOOMScore()
	working := context.WithoutCancel(ctx)
	published, err := a.publish(working)
	if err != nil {
		return a.explainFailure(err)
	}
	held, err := a.hold()
	if err != nil {
		a.withdraw(published)
		return err
	}
	defer held.Release() //nolint:errcheck // the kernel releases it in any case
	waitForStop(ctx)
	a.unpublish(published, held)
	return nil
}

// explainFailure adds a code to an error without one.
func (a attachment) explainFailure(err error) error {
	if _, coded := errors.AsType[*api.Error](err); coded {
		return err
	}
	return api.Errorf("disk-attach-failed", "cannot attach disk %s: %w", a.disk.CID, err)
}

// publish publishes the disk. The lock of an earlier attachment is removed first: the lock reports that the disk is published.
func (a attachment) publish(ctx context.Context) (*volume.Device, error) {
	if err := a.sys.Remove(a.lock); err != nil {
		return nil, err
	}
	published, err := a.removeStaleNode() //nolint:contextcheck // it ends soon, and must not stop halfway
	if err != nil {
		return nil, err
	}
	prepared, err := volume.Prepare(ctx, a.sys, a.disk)
	if err != nil {
		return nil, err
	}
	if err := a.publishDevice(ctx, prepared, published); err != nil {
		a.withdraw(prepared)
		return nil, err
	}
	return prepared, nil
}

// publishDevice completes the disk, and creates its node. published reports that the VM has a node of the disk.
func (a attachment) publishDevice(ctx context.Context, prepared *volume.Device, published bool) error {
	used, err := a.checkNotUsedByOthers(ctx, prepared, published)
	if err != nil {
		return err
	}
	if !used { // otherwise this attachment restarted, and the next one completes the disk
		if err := a.complete(ctx, prepared); err != nil {
			return err
		}
	}
	if err := prepared.MarkPublished(); err != nil {
		return err
	}
	if err := prepared.Verify(); err != nil {
		return err
	}
	return device.Publish(a.sys, a.node, prepared.Numbers)
}

// complete completes the disk, and retries while another program has the device open for a moment.
func (a attachment) complete(ctx context.Context, prepared *volume.Device) error {
	var failure error
	err := attempt(ctx, func() error {
		if failure = prepared.Complete(ctx); errors.Is(failure, device.ErrBusy) {
			return failure
		}
		return nil
	})
	return cmp.Or(err, failure)
}

// removeStaleNode removes the node of a killed attachment if it is not the device of the disk any more: the VM must not find another disk
// at this node, also if this attachment fails. The node stays if the VM still uses its device. published reports that the node is the
// device of the disk.
func (a attachment) removeStaleNode() (published bool, err error) {
	numbers, err := device.NumbersOf(a.sys, a.node)
	if errors.Is(err, device.ErrNotDevice) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	published, err = a.isOwn(numbers)
	if err != nil || published {
		return published, err
	}
	return false, a.sys.Remove(a.node)
}

// isOwn reports whether these are the numbers of the disk's device now.
func (a attachment) isOwn(numbers device.Numbers) (bool, error) {
	own, err := device.NumbersOf(a.sys, blockVolume)
	if !errors.Is(err, device.ErrNotDevice) {
		return err == nil && own == numbers, err
	}
	loop, err := device.LoopAt(a.sys, numbers, image)
	if errors.Is(err, fs.ErrNotExist) || err == nil && loop == nil {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return true, loop.Close()
}

// unpublish waits until the device is free, and removes its node, then the loop device, and then the lock: until then, an exclusivity check
// leaves the loop device to this program. The step that fails is repeated, for example without memory: without this process, the kubelet
// would unmap the volume. If another attachment took over, unpublish removes nothing.
func (a attachment) unpublish(published *volume.Device, held *lock.Lock) {
	steps := []func() error{
		func() error {
			return a.whileFree(published.Path, published.Numbers, func() error { return a.removeOwn(a.node, held) })
		},
		func() error { return ifCurrent(held, published.Free) },
		func() error { return a.removeOwn(a.lock, held) },
	}
	for _, step := range steps {
		if err := a.insist(published.Numbers, step); err != nil {
			slog.Warn("leaving the disk to its new attachment", "disk", a.disk.CID, "cause", err)
			return
		}
	}
}

func (a attachment) removeOwn(path string, held *lock.Lock) error {
	return ifCurrent(held, func() error { return a.sys.Remove(path) })
}

// ifCurrent calls do if no other attachment took over.
func ifCurrent(held *lock.Lock, do func() error) error {
	current, err := held.IsCurrent()
	if err != nil {
		return err
	}
	if !current {
		return errReplaced
	}
	return do()
}

// withdraw cleans up after publishing failed. It removes the node and frees the loop device, unless the VM uses the device: another disk
// can get the loop device, and the VM must not find that disk at this node. If it fails, the next start of this program continues with
// them.
func (a attachment) withdraw(prepared *volume.Device) {
	err := a.whileFree(prepared.Path, prepared.Numbers, func() error {
		held, err := lock.Held(a.sys, a.lock)
		if held {
			err = errReplaced
		}
		if err != nil {
			return err
		}
		return a.sys.Remove(a.node)
	})
	if err == nil {
		err = prepared.Free()
	}
	if err != nil {
		slog.Warn("cannot free the device", "disk", a.disk.CID, "cause", err)
	}
}
