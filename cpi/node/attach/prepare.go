//go:build linux

package attach

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/device"
	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/cpi/node/volume"
)

const (
	waitInterval = 20 * time.Millisecond

	// attachedMarker exists if a VM had a Block volume before. A Pod that prepares a disk has none now, and an old one may have.
	attachedMarker = "/markers/attached"
	// preparedMarker exists if the disk was prepared for the VM Pod.
	preparedMarker = "/devices/.prepared"
)

// Prepare is the attachment of a disk that becomes a volume of the VM Pod. Before that Pod starts, it formats a Block volume, or grows its
// filesystem. A Filesystem volume becomes a directory in the VM. Then it waits until the context ends. It publishes no device node.
func Prepare(ctx context.Context, sys system.System, disk api.Disk) error {
	a := newAttachment(sys, disk)
	if err := a.prepare(context.WithoutCancel(ctx)); err != nil {
		return a.explainFailure(err)
	}
	return a.idle(ctx)
}

// Idle is the attachment of a disk that is a volume of the VM Pod: it waits until the context ends.
func Idle(ctx context.Context, sys system.System, disk api.Disk) error {
	return newAttachment(sys, disk).idle(ctx)
}

func (a attachment) idle(ctx context.Context) error {
	held, err := a.hold()
	if err != nil {
		return err
	}
	waitForStop(ctx)
	return held.Release()
}

// prepare prepares the disk at the first start of the attachment. Later, the VM may use the device without being visible, for example in a
// sandbox such as gVisor.
func (a attachment) prepare(ctx context.Context) error {
	prepared, err := a.sys.Exists(preparedMarker)
	if err != nil || prepared {
		return err
	}
	_, err = device.NumbersOf(a.sys, blockVolume)
	switch {
	case err == nil:
		err = a.prepareBlockVolume(ctx)
	case errors.Is(err, device.ErrNotDevice):
		err = a.checkNoImage()
	}
	if err != nil {
		return err
	}
	marker, err := a.sys.Open(preparedMarker, unix.O_WRONLY|unix.O_CREAT, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(marker.Sync(), marker.Close())
}

func (a attachment) prepareBlockVolume(ctx context.Context) error {
	numbers, err := device.NumbersOf(a.sys, blockVolume)
	if err != nil {
		return err
	}
	file, err := device.OpenExclusive(a.sys, blockVolume)
	if errors.Is(err, device.ErrBusy) {
		return a.inUse("cannot prepare disk %s for VM %s", numbers)
	} else if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	prepared, err := volume.Prepare(ctx, a.sys, a.disk)
	if err != nil {
		return err
	}
	return errors.Join(a.complete(ctx, prepared), prepared.Free())
}

// checkNoImage fails if a Filesystem volume has an image file, unless the disk is known to be a directory: then the file is of a job.
func (a attachment) checkNoImage() error {
	formatted, err := a.sys.Exists(attachedMarker)
	if err != nil || formatted || a.disk.Formatted {
		return err
	}
	exists, err := a.sys.Exists(image)
	if err == nil && exists {
		err = api.Errorf("volume-not-blank", "the volume of disk %s has an image file, which VM %s with disk_strategy: recreate cannot use; "+
			"nothing was changed; attach the disk to a VM without disk_strategy: recreate", a.disk.CID, a.disk.VM)
	}
	return err
}
