//go:build linux

package volume

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/device"
	"bosh-kubernetes-cpi/cpi/node/system"
)

const (
	directory    = "/volume"
	imageName    = "disk.img"
	newImageName = imageName + ".new"
	imagePath    = directory + "/" + imageName
	newImagePath = directory + "/" + newImageName
)

// openImage returns the loop device of the image file. It creates the image file unless it exists, makes it as large as the disk, and binds
// the loop device unless it is bound.
func openImage(ctx context.Context, sys system.System, disk api.Disk) (*Device, error) {
	exists, err := sys.Exists(imagePath)
	if err != nil {
		return nil, err
	}
	if !exists {
		if err := createImage(ctx, sys, disk); err != nil {
			return nil, err
		}
	}
	// An earlier attempt may have been killed after it renamed the image file.
	if err := sys.SyncPath(directory); err != nil {
		return nil, err
	}
	if err := allocateImage(sys, disk); err != nil {
		return nil, err
	}
	loop, err := device.FindLoop(sys, imagePath) //nolint:contextcheck // it ends soon, and must not stop halfway
	if err != nil {
		return nil, err
	}
	if loop != nil {
		return newLoopDevice(sys, disk, loop), nil
	}
	if loop, err = device.BindLoop(ctx, sys, imagePath); err != nil {
		return nil, err
	}
	d := newLoopDevice(sys, disk, loop)
	d.bound = true
	return d, nil
}

func newLoopDevice(sys system.System, disk api.Disk, loop *device.Loop) *Device {
	return &Device{Path: loop.Path(), Numbers: loop.Numbers(), sys: sys, disk: disk, loop: loop}
}

// createImage creates the image file, with a filesystem, under another name, so that an existing image file is always complete.
func createImage(ctx context.Context, sys system.System, disk api.Disk) error {
	if disk.Formatted {
		return errBlank(disk)
	}
	if err := checkNoFiles(sys, disk); err != nil {
		return err
	}
	if err := sys.Remove(newImagePath); err != nil {
		return err
	}
	if err := checkSpace(sys, disk, 0); err != nil {
		return err
	}
	file, err := sys.Open(newImagePath, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(disk.SizeMiB * mib); err != nil {
		return err
	}
	if err := makeFilesystem(ctx, sys, disk, newImagePath, 0); err != nil {
		return err
	}
	// After a power failure, a renamed file may be empty unless its content was synced before the rename.
	if err := file.Sync(); err != nil {
		return err
	}
	return sys.Rename(newImagePath, imagePath)
}

// checkNoFiles fails if the volume has files, which an image file would hide: the disk may be a directory of a VM with
// disk_strategy: recreate. Many filesystems have hidden files and lost+found from the start.
func checkNoFiles(sys system.System, disk api.Disk) error {
	names, err := sys.ReadDir(directory)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, ".") || name == "lost+found" || name == newImageName {
			continue
		}
		return api.Errorf("volume-not-blank", "the volume of disk %s has files, such as %s, but not the disk's image file; nothing was changed; "+
			"attach the disk to a VM with disk_strategy: recreate", disk.CID, name)
	}
	return nil
}

// checkSpace fails if the volume has no space for the full size of the image file, of which some bytes are already allocated. Otherwise,
// data could be lost when the VM writes to the disk.
func checkSpace(sys system.System, disk api.Disk, allocated int64) error {
	stat, err := sys.Statfs(directory)
	if err != nil {
		return err
	}
	unit := stat.Frsize // that of the numbers of blocks, in FUSE filesystems
	if unit == 0 {
		unit = stat.Bsize
	}
	if space := (int64(stat.Bavail)*unit + allocated) / mib; space < disk.SizeMiB {
		return api.Errorf("volume-full", "the volume of disk %s has space for %d MiB, but the disk needs %d MiB", disk.CID, space, disk.SizeMiB)
	}
	return nil
}

// allocateImage makes the image file as large as the disk. If the disk is preallocated, it allocates the full size, including the blocks
// that mkfs or the VM discarded. It does not fail if that fails when the attachment starts again: the VM waits for its disk.
func allocateImage(sys system.System, disk api.Disk) error {
	file, err := sys.Open(imagePath, unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return err
	}
	allocated, size := stat.Blocks*512, max(stat.Size, disk.SizeMiB*mib)
	if size > stat.Size {
		if err := checkSpace(sys, disk, allocated); err != nil {
			return err
		}
		if err := errors.Join(file.Truncate(size), file.Sync()); err != nil {
			return err
		}
	}
	if !disk.Preallocate {
		return nil
	}
	published, err := sys.Exists(marker)
	if err != nil {
		return err
	}
	err = preallocate(sys, disk, file, allocated, size)
	if err != nil && published {
		slog.Warn("cannot preallocate the disk again", "cause", err)
		return nil
	}
	return err
}

// preallocate allocates the full size of the image file. If the volume has too little space, it allocates nothing, to leave the space to
// other users.
func preallocate(sys system.System, disk api.Disk, file *system.File, allocated, size int64) error {
	if err := checkSpace(sys, disk, allocated); err != nil {
		return err
	}
	if err := file.Allocate(size); err != nil {
		return api.Errorf("preallocation-failed", "cannot preallocate disk %s on its volume (cloud_properties.preallocate): %w", disk.CID, err)
	}
	return nil
}
