//go:build linux

package filesystem

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// Grow grows an ext4 or XFS filesystem, which must not be in use, to the size of its device if that is at least 1 MiB larger. It does not
// change other content.
func Grow(ctx context.Context, sys system.System, path string) error {
	superblock, err := readSuperblock(sys, path)
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	grows, err := isSmaller(sys, path, superblock.info().SizeBytes)
	if err != nil || !grows {
		return err
	}
	if ext4, ok := superblock.(ext4Superblock); ok {
		return growExt4(ctx, sys, path, ext4)
	}
	return whileMounted(sys, path, api.XFS, func() error {
		_, err := sys.MustRun(ctx, "xfs_growfs", sys.Path(mountPoint))
		return err
	})
}

// isSmaller reports whether a filesystem of this size is at least 1 MiB smaller than its device.
func isSmaller(sys system.System, path string, bytes int64) (bool, error) {
	file, err := sys.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	size, err := file.Size()
	return err == nil && size-bytes >= mib, err
}

// growExt4 grows a filesystem while it is mounted if possible. The kernel does not allow that to processes without CAP_SYS_RESOURCE, which
// root does not have on some nodes, for example in nested containers.
func growExt4(ctx context.Context, sys system.System, path string, superblock ext4Superblock) error {
	mounted, err := sys.HasCapability(unix.CAP_SYS_RESOURCE)
	if err != nil {
		return err
	}
	if mounted {
		return growMountedExt4(ctx, sys, path, superblock)
	}
	return growUnmountedExt4(ctx, sys, path)
}

// growMountedExt4 needs no complete e2fsck before, and the kernel's journal keeps the filesystem valid if the node fails or resize2fs is
// killed. The kernel does not grow a filesystem in which it found errors.
func growMountedExt4(ctx context.Context, sys system.System, path string, superblock ext4Superblock) error {
	if superblock.hasErrors() {
		if err := check(ctx, sys, path); err != nil {
			return err
		}
	}
	return whileMounted(sys, path, api.Ext4, func() error {
		_, err := sys.MustRun(ctx, "resize2fs", sys.Path(path))
		return err
	})
}

// growUnmountedExt4 checks all of the filesystem before, as resize2fs requires. If resize2fs is killed, the filesystem may have errors that
// e2fsck does not repair automatically, although no file is lost.
func growUnmountedExt4(ctx context.Context, sys system.System, path string) error {
	if err := check(ctx, sys, path, "-f"); err != nil {
		return err
	}
	_, err := sys.MustRun(ctx, "resize2fs", sys.Path(path))
	return err
}
