//go:build linux

package boot

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/boot/mounts"
	"bosh-kubernetes-cpi/cpi/node/filesystem"
)

// mountFilesystem mounts the filesystem of a disk, and only that: an attachment gives the filesystem the UUID of the disk, and a device
// that got the number of another one has another UUID. Filesystems that a job created, other than ext4 and XFS, are exempt.
//
// The device stays open until it is mounted, so that the kernel does not reuse its number, and the mounted device is compared with the open
// one, because the device node may be replaced at any moment.
func (v *vm) mountFilesystem(ctx context.Context, cid, options string) (problem, err error) {
	path := filepath.Join(devices, cid)
	device, err := v.sys.Open(path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err, nil // for example ENXIO: a disk that is just being attached, or detached
	}
	defer device.Close()
	stat, err := device.Stat()
	if err != nil {
		return nil, err
	}
	info, err := filesystem.Identify(v.sys, path)
	exempt := errors.Is(err, filesystem.ErrUnknown)
	if err != nil && !exempt {
		return err, nil
	}
	expected := api.DiskUUID(cid)
	if !exempt && info.UUID != expected {
		return nil, errWrongDisk(cid, info.UUID, expected)
	}
	problem, err = v.mountStore(ctx, cid, options)
	if problem != nil || err != nil || exempt {
		return problem, err
	}
	return nil, v.checkMounted(cid, stat.Rdev)
}

func errWrongDisk(cid, uuid, expected string) error {
	return api.Errorf("wrong-disk", "the device of disk %s has the filesystem %s of another disk, not %s; "+
		"recreate the VM, which attaches the disk again", cid, uuid, expected)
}

// checkMounted unmounts the disk and fails if another device was mounted than the one with these numbers.
func (v *vm) checkMounted(cid string, device uint64) error {
	all, err := mounts.Read(v.sys)
	if err != nil {
		return err
	}
	mounted, ok := all.At(store)
	expected := fmt.Sprintf("%d:%d", unix.Major(device), unix.Minor(device))
	if ok && mounted.Device == expected {
		return nil
	}
	err = fmt.Errorf("mount disk %s: its device node changed from %s to %s", cid, expected, mounted.Device)
	if !ok {
		return err
	}
	return errors.Join(err, v.sys.Unmount(store, 0))
}
