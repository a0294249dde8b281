//go:build linux

// Package volume prepares a disk on its volume: it creates, identifies and grows the filesystem of the disk. With volumeMode Block, the
// disk is the device /dev/volume. With Filesystem, the disk is an image file with a loop device, on the volume at /volume.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/device"
	"bosh-kubernetes-cpi/cpi/node/filesystem"
	"bosh-kubernetes-cpi/cpi/node/system"
)

const mib = 1 << 20

// blockPath is the device of a volume with volumeMode Block.
const blockPath = "/dev/volume"

// marker is a file in a volume of the attachment Pod, which outlives a reboot of the node. It records that the disk was published in the
// VM. The PVC records that only when the attachment is ready, and the arguments of the attachment do not change when it restarts.
const (
	markers = "/markers"
	marker  = markers + "/attached"
)

// Device is the block device of a disk. It stays open until Free or Close, because its numbers identify it only while it is open.
type Device struct {
	Path    string // in this container
	Numbers device.Numbers

	sys  system.System
	disk api.Disk
	file *system.File // of a Block volume
	loop *device.Loop // of a Filesystem volume
	// bound reports that Prepare bound the loop device. Otherwise, an earlier attachment may have published it.
	bound bool
}

// Prepare returns the device of the disk, and creates a filesystem if the disk is blank. It does not change unknown content of a disk that
// had data before, because jobs may format a disk themselves, for example a dynamic disk. After it was killed at any point, Prepare can be
// repeated.
func Prepare(ctx context.Context, sys system.System, disk api.Disk) (*Device, error) {
	disk, err := withHistory(sys, disk)
	if err != nil {
		return nil, err
	}
	if err := filesystem.UnmountLeftover(sys); err != nil {
		return nil, err
	}
	d, err := openBlock(sys, disk)
	if errors.Is(err, device.ErrNotDevice) {
		d, err = openImage(ctx, sys, disk)
	}
	if err != nil {
		return nil, err
	}
	if err := d.prepare(ctx); err != nil {
		return nil, errors.Join(err, d.abandon())
	}
	return d, nil
}

// openBlock opens the device of a Block volume. The error is ErrNotDevice if the volume is not one.
func openBlock(sys system.System, disk api.Disk) (*Device, error) {
	numbers, err := device.NumbersOf(sys, blockPath)
	if err != nil {
		return nil, err
	}
	file, err := sys.Open(blockPath, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return &Device{Path: blockPath, Numbers: numbers, sys: sys, disk: disk, file: file}, nil
}

func (d *Device) prepare(ctx context.Context) error {
	if d.file != nil {
		if err := d.checkSize(); err != nil {
			return err
		}
	}
	return d.ensureFilesystem(ctx)
}

// checkSize fails if the device is smaller than the disk.
func (d *Device) checkSize() error {
	size, err := d.file.Size()
	if err != nil {
		return err
	}
	if size/mib < d.disk.SizeMiB {
		return api.Errorf("volume-too-small", "the device of disk %s has %d MiB, but the disk has %d MiB; check whether the storage actually "+
			"expanded the volume", d.disk.CID, size/mib, d.disk.SizeMiB)
	}
	return nil
}

// ensureFilesystem creates a filesystem if the disk is blank.
func (d *Device) ensureFilesystem(ctx context.Context) error {
	next, err := decide(ctx, d.sys, d.disk, d.Path)
	if err != nil || next == keep {
		return err
	}
	if free, err := d.isFree(); err != nil {
		return err
	} else if !free { // also if mkfs of a killed attachment still runs
		return api.Errorf("disk-in-use", "cannot format disk %s: %w", d.disk.CID, device.ErrBusy)
	}
	return format(ctx, d.sys, d.disk, d.Path, next == formatAgain)
}

// Complete gives an ext4 or XFS filesystem the UUID of the disk, and grows it to the size of the device. The error is device.ErrBusy if the
// device is in use.
func (d *Device) Complete(ctx context.Context) error {
	if free, err := d.isFree(); err != nil {
		return err
	} else if !free {
		return fmt.Errorf("cannot complete disk %s: %w", d.disk.CID, device.ErrBusy)
	}
	if d.loop != nil {
		if err := d.loop.UpdateCapacity(); err != nil {
			return err
		}
	}
	content, err := inspect(ctx, d.sys, d.disk, d.Path)
	if err != nil || !content.IsSupported() {
		return err
	}
	if err := d.explain("set the UUID of", filesystem.SetUUID(ctx, d.sys, d.Path, api.DiskUUID(d.disk.CID))); err != nil {
		return err
	}
	return d.explain("grow", filesystem.Grow(ctx, d.sys, d.Path))
}

func (d *Device) explain(action string, err error) error {
	if errors.Is(err, filesystem.ErrDamaged) {
		return api.Errorf("filesystem-damaged", "cannot %s the filesystem of disk %s: %w", action, d.disk.CID, err)
	}
	if err != nil {
		return fmt.Errorf("cannot %s the filesystem of disk %s: %w", action, d.disk.CID, err)
	}
	return nil
}

// isFree reports whether nothing has the device mounted or open exclusively.
func (d *Device) isFree() (bool, error) {
	file, err := device.OpenExclusive(d.sys, d.Path)
	if errors.Is(err, device.ErrBusy) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, file.Close()
}

// MarkPublished records that the VM may change the content of the disk from now on: a blank volume is the wrong one then. The Pod must have
// the volume for the record.
func (d *Device) MarkPublished() error {
	file, err := d.sys.Open(marker, unix.O_WRONLY|unix.O_CREAT, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return err
	}
	return d.sys.SyncPath(markers)
}

// record is a file that is not empty once the PVC records that a VM had the disk. Unlike the marker, it also outlives the node: another one
// may have its name, and a blank volume.
const record = "/pod/formatted"

// withHistory returns the disk, with Formatted if a VM had it before. It is called once, before anything is changed. A kubelet that starts
// again can report for a moment that the first attachment is ready, and the CPI then records that the disk is formatted: this attachment
// formats the disk nevertheless.
func withHistory(sys system.System, disk api.Disk) (api.Disk, error) {
	if disk.Formatted {
		return disk, nil
	}
	recorded, err := sys.ReadFile(record)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return disk, err
	}
	published, err := sys.Exists(marker)
	disk.Formatted = len(recorded) > 0 || published
	return disk, err
}

// Verify returns an error if the device does not show the disk any more, because another program detached its loop device.
func (d *Device) Verify() error {
	if d.loop == nil {
		return nil
	}
	return d.loop.Verify()
}

// Free frees a loop device, which would otherwise keep the volume in use, and closes the device. The error is device.ErrBusy if the device
// is mounted; after an error, Free can be called again. It waits for nothing.
func (d *Device) Free() error {
	if d.loop != nil {
		return d.loop.Free()
	}
	return d.Close()
}

// Close closes the device, and leaves a loop device bound. It can be called again.
func (d *Device) Close() error {
	if d.loop != nil {
		return d.loop.Close()
	}
	if err := d.file.Close(); !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}

// abandon frees a loop device that was not published, and closes the device.
func (d *Device) abandon() error {
	if d.bound {
		return d.Free()
	}
	return d.Close()
}
