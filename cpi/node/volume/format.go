//go:build linux

package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/filesystem"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// A decision is what to do with the content of a device.
type decision int

const (
	keep        decision = iota // it has a filesystem, or had data before
	formatBlank                 // it is blank
	formatAgain                 // its content is from an interrupted mkfs
)

// decide returns what to do with the content of the device. Only a disk that no VM had is formatted.
func decide(ctx context.Context, sys system.System, disk api.Disk, path string) (decision, error) {
	if !disk.Formatted {
		if interrupted, err := wasInterrupted(sys, disk, path); err != nil {
			return keep, err
		} else if interrupted {
			return formatAgain, nil
		}
	}
	content, err := inspect(ctx, sys, disk, path)
	if err != nil {
		return keep, err
	}
	switch {
	case content.Blank && disk.Formatted:
		return keep, errBlank(disk)
	case content.Blank:
		return formatBlank, nil
	case content.IsUnknown() && !disk.Formatted:
		return keep, api.Errorf("volume-not-blank", "the volume of disk %s has data without a known filesystem; nothing was changed", disk.CID)
	}
	return keep, nil
}

// errBlank is the error for a blank volume of a disk that had data before: it is the wrong volume.
func errBlank(disk api.Disk) error {
	return api.Errorf("volume-blank", "the volume of disk %s is blank, but the disk had a filesystem: this may be another volume, "+
		"because the node was rebuilt or the export changed; restore the volume with the data, or remove the annotation "+
		"bosh.cloudfoundry.org/formatted of its PVC to use the disk empty", disk.CID)
}

// inspect returns what is on the device.
func inspect(ctx context.Context, sys system.System, disk api.Disk, path string) (filesystem.Content, error) {
	content, err := filesystem.Inspect(ctx, sys, path)
	return content, unreadable(disk, err)
}

// unreadable adds the code to the error of a read.
func unreadable(disk api.Disk, err error) error {
	var call *fs.PathError
	if errors.As(err, &call) && call.Op == "read" {
		return api.Errorf("volume-unreadable", "cannot read the volume of disk %s: %w", disk.CID, err)
	}
	return err
}

const sectorSize = 512

// newMark returns the sector that is on the device while mkfs runs. If a disk has this mark, no VM used the disk, and its content is from
// an interrupted mkfs.
func newMark(disk api.Disk) []byte {
	sector := make([]byte, sectorSize)
	copy(sector, "bosh-kubernetes-cpi makes the filesystem of disk "+disk.CID+"\n")
	return sector
}

// markOffsets returns where the two marks are on a device of this size. Each mkfs keeps one of them: mkfs.xfs keeps the last sector of the
// first MiB, and mkfs.ext4 keeps the end of the device, because format excludes it.
func markOffsets(size int64) []int64 {
	return []int64{mib - sectorSize, (size/sectorSize - 1) * sectorSize}
}

func hasMark(sys system.System, disk api.Disk, path string, offset int64) (bool, error) {
	sector, err := sys.ReadDirect(path, offset, sectorSize)
	return err == nil && bytes.Equal(sector, newMark(disk)), unreadable(disk, err)
}

// wasInterrupted reports whether an mkfs for this disk started on the device but did not finish.
func wasInterrupted(sys system.System, disk api.Disk, path string) (bool, error) {
	size, err := sizeOf(sys, path)
	if err != nil {
		return false, err
	}
	for _, offset := range markOffsets(size) {
		if found, err := hasMark(sys, disk, path, offset); err != nil || found {
			return found, err
		}
	}
	return false, nil
}

func sizeOf(sys system.System, path string) (int64, error) {
	file, err := sys.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return file.Size()
}

// format creates the filesystem. It discards the blocks before it writes the marks, because mkfs would discard the marks. Again, after it
// was interrupted, it does not discard them: if it is killed then, unknown content without a mark could remain.
func format(ctx context.Context, sys system.System, disk api.Disk, path string, again bool) error {
	size, err := writeMarks(sys, disk, path, !again)
	if err != nil {
		return err
	}
	if err := makeFilesystem(ctx, sys, disk, path, size/1024-4); err != nil {
		return err
	}
	return eraseMarks(sys, disk, path)
}

// writeMarks writes the marks, and returns the size of the device.
func writeMarks(sys system.System, disk api.Disk, path string, discard bool) (size int64, err error) {
	file, err := sys.Open(path, unix.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close() // before mkfs, which opens the device exclusively
	if size, err = file.Size(); err != nil {
		return 0, err
	}
	if discard {
		_ = file.Discard() // only returns unused space to the storage, which may not support it
	}
	for _, offset := range markOffsets(size) {
		if err := file.WriteAt(newMark(disk), offset); err != nil {
			return 0, err
		}
	}
	return size, file.Sync()
}

// eraseMarks erases the marks that mkfs kept, when the filesystem is on the storage.
func eraseMarks(sys system.System, disk api.Disk, path string) error {
	file, err := sys.Open(path, unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	for _, offset := range markOffsets(size) {
		found, err := hasMark(sys, disk, path, offset)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if err := file.WriteAt(make([]byte, sectorSize), offset); err != nil {
			return err
		}
	}
	return file.Sync()
}

// makeFilesystem creates the filesystem of the disk; see filesystem.Make.
func makeFilesystem(ctx context.Context, sys system.System, disk api.Disk, path string, kib int64) error {
	if err := filesystem.Make(ctx, sys, path, disk.Filesystem, api.DiskUUID(disk.CID), kib); err != nil {
		return fmt.Errorf("cannot format disk %s: %w", disk.CID, err)
	}
	return nil
}
