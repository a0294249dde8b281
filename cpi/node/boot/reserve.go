//go:build linux

package boot

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/boot/files"
)

// The reserve is free space for the next start of a VM. Without it, neither this program nor the agent can start on a full disk, and
// without an agent, nobody can log in to remove files.
const (
	reserve       = ephemeralDisk + "/reserve"
	reserveMiB    = 8
	reserveInodes = 128
)

// diskFull reports whether the ephemeral disk has less free space, or fewer free inodes, than factor times the reserve.
func (v *vm) diskFull(factor uint64) (bool, error) {
	stat, err := v.sys.Statfs(ephemeralDisk)
	return err == nil && isFull(stat, factor), err
}

func isFull(stat unix.Statfs_t, factor uint64) bool {
	block := uint64(stat.Frsize) //nolint:gosec // a size
	freeMiB := stat.Bavail * block >> 20
	// A filesystem without a fixed number of inodes reports 0.
	return freeMiB < factor*reserveMiB || stat.Files > 0 && stat.Ffree < factor*reserveInodes
}

// isNoSpace reports whether an error means that a filesystem, or a quota, is full.
func isNoSpace(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// freeReserve removes the reserve if the disk is full.
func (v *vm) freeReserve(context.Context) error {
	full, err := v.diskFull(1)
	if err != nil || !full {
		return err
	}
	v.log.Print("the VM's ephemeral disk is full: remove files from /var/vcap, or recreate the VM with a larger one")
	return v.sys.RemoveAll(reserve)
}

// createReserve reserves space for the next start, unless that would fill the disk or the filesystem cannot allocate space.
func (v *vm) createReserve(context.Context) error {
	exists, err := files.IsDirectory(v.sys, reserve)
	if err != nil || exists {
		return err
	}
	full, err := v.diskFull(2)
	if err != nil || full {
		return err
	}
	next := reserve + ".new"
	if err := v.sys.RemoveAll(next); err != nil {
		return err
	}
	err = v.fillReserve(next)
	if err == nil {
		return v.sys.Rename(next, reserve)
	}
	if isNoSpace(err) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return v.sys.RemoveAll(next)
	}
	return err
}

func (v *vm) fillReserve(directory string) error {
	if err := v.sys.Mkdir(directory, 0o755); err != nil {
		return err
	}
	space, err := v.sys.Open(directory+"/space", unix.O_WRONLY|unix.O_CREAT, 0o644)
	if err != nil {
		return err
	}
	defer space.Close()
	if err := space.Allocate(reserveMiB << 20); err != nil {
		return err
	}
	for inode := range reserveInodes {
		if err := v.sys.WriteFile(fmt.Sprintf("%s/inode-%d", directory, inode+1), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}
