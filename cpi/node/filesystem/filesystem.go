//go:build linux

// Package filesystem identifies, creates and grows the filesystems of disks, and sets their UUIDs.
//
// It reads superblocks itself. Programs of the stemcell create and change filesystems, so that the VM's own fsck understands them.
package filesystem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
)

var (
	// ErrUnknown is the error for content that is not an ext4 or XFS filesystem: blank, another filesystem, or other data.
	ErrUnknown = errors.New("not an ext4 or XFS filesystem")
	// ErrDamaged is the error for a filesystem that must be repaired first.
	ErrDamaged = errors.New("it has errors")
)

const mib = 1 << 20

// Info describes a filesystem.
type Info struct {
	Type      string // ext4, xfs, or as blkid calls it
	UUID      string // of ext4 and XFS, in lower case
	SizeBytes int64  // of ext4 and XFS; may be smaller than the device
}

// IsSupported reports whether this package can change the filesystem.
func (i Info) IsSupported() bool { return i.SizeBytes > 0 }

// Make creates a filesystem of the type, with the UUID, on a device or in a new image file, and does not discard blocks. kib is the size of
// an ext4 filesystem on a device, and 0 for an image file. XFS always gets the whole device.
//
// The journal of an image file needs no initialization, because a new file contains only zeros. A device may have an old journal.
func Make(ctx context.Context, sys system.System, path, filesystem, uuid string, kib int64) error {
	switch filesystem {
	case api.Ext4:
		options, size := "nodiscard,lazy_itable_init=1,lazy_journal_init=1", []string(nil)
		if kib > 0 {
			options, size = "nodiscard,lazy_itable_init=1,lazy_journal_init=0", []string{strconv.FormatInt(kib, 10) + "k"}
		}
		arguments := append([]string{"-q", "-F", "-m", "1", "-U", uuid, "-E", options, sys.Path(path)}, size...)
		_, err := sys.MustRun(ctx, "mkfs.ext4", arguments...)
		return err
	case api.XFS:
		_, err := sys.MustRun(ctx, "mkfs.xfs", "-q", "-f", "-K", "-m", "uuid="+uuid, sys.Path(path))
		return err
	}
	return api.Errorf("unknown-filesystem", "unknown filesystem %s", filesystem)
}

// mountPoint is a directory of the container, in which no other program has files.
const mountPoint = "/mnt/grow"

// whileMounted calls do while the filesystem is mounted.
func whileMounted(sys system.System, path, filesystem string, do func() error) (err error) {
	if err := sys.MkdirAll(mountPoint, 0o700); err != nil {
		return err
	}
	options := ""
	if filesystem == api.XFS {
		options = "nouuid" // the source of a snapshot may be mounted on this node
	}
	err = sys.Mount(path, mountPoint, filesystem, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_NOATIME, options)
	if isDamage(err) {
		return fmt.Errorf("%w: %w; repair it with e2fsck or xfs_repair", ErrDamaged, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sys.Unmount(mountPoint, unix.UMOUNT_NOFOLLOW)) }()
	return do()
}

// isDamage reports whether mount(2) failed because of the content of the filesystem: it is corrupted (EUCLEAN), has a wrong checksum
// (EBADMSG), or values that the kernel does not support (EINVAL, EFSCORRUPTED of old kernels).
func isDamage(err error) bool {
	return errors.Is(err, unix.EUCLEAN) || errors.Is(err, unix.EBADMSG) || errors.Is(err, unix.EINVAL)
}

// UnmountLeftover unmounts a filesystem that an earlier attempt in this container left mounted.
func UnmountLeftover(sys system.System) error {
	err := sys.Unmount(mountPoint, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist) { // nothing is mounted
		return nil
	}
	return err
}
