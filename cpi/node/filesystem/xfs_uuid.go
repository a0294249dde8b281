//go:build linux

package filesystem

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// setXFSUUID runs xfs_admin, which writes an empty log with the new UUID, and then the superblocks. If it was killed before, the kernel
// does not mount the filesystem. There is nothing to replay then, because xfs_admin only replaces a log if all its changes are in the
// filesystem.
func setXFSUUID(ctx context.Context, sys system.System, path string, s xfsSuperblock, uuid string) error {
	if err := prepareXFSLog(ctx, sys, path, s, uuid); err != nil {
		return err
	}
	output, err := sys.MustRun(ctx, "xfs_admin", "-U", uuid, sys.Path(path))
	if err != nil {
		return err
	}
	if err := checkUUID(sys, path, uuid); err != nil { // the exit status of xfs_admin is also 0 if it changes nothing
		return fmt.Errorf("xfs_admin: %w: %s", err, output.Stdout+output.Stderr)
	}
	return nil
}

// prepareXFSLog makes the log acceptable for xfs_admin: the kernel replays it, or xfs_repair replaces an incomplete one.
func prepareXFSLog(ctx context.Context, sys system.System, path string, s xfsSuperblock, uuid string) error {
	state, err := readXFSLog(sys, path, s, uuid)
	if err != nil {
		return err
	}
	switch state {
	case logIncomplete:
		_, err = sys.MustRun(ctx, "xfs_repair", "-L", sys.Path(path))
		return err
	case logReplaced:
		return nil
	}
	return whileMounted(sys, path, api.XFS, func() error { return nil })
}

type logState int

const (
	logUsed       logState = iota // by the kernel, or on another device
	logIncomplete                 // xfs_admin, or then xfs_repair, was killed while it wrote an empty log
	logReplaced                   // xfs_admin was killed between writing the log and the superblock
)

// readXFSLog returns the state of the log. Both programs first zero the log, and then write from its start to its end. A log in its first
// cycle needs only its first record. In any later cycle, no sector is zero. The log starts with a struct xlog_rec_header of the kernel's
// fs/xfs/libxfs/xfs_log_format.h.
func readXFSLog(sys system.System, path string, s xfsSuperblock, uuid string) (logState, error) {
	const sector, cycleOffset, uuidOffset = 512, 4, 304
	offset, size := s.log()
	if size == 0 {
		return logUsed, nil
	}
	first, err := sys.ReadDirect(path, offset, sector)
	if err != nil {
		return logUsed, err
	}
	last, err := sys.ReadDirect(path, offset+size-sector, sector)
	if err != nil {
		return logUsed, err
	}
	switch cycle := binary.BigEndian.Uint32(first[cycleOffset:]); {
	case s.needsRepair(), isZero(first), cycle > 1 && isZero(last):
		return logIncomplete, nil
	case formatUUID(first[uuidOffset:]) == uuid:
		return logReplaced, nil
	}
	return logUsed, nil
}

// completeXFSUUID copies the UUID to the superblocks of the other allocation groups, if xfs_admin was killed before it wrote all of them.
// Otherwise, xfs_repair would destroy the filesystem: the other superblocks do not state that its metadata has the earlier UUID. xfs_admin
// would do the same, but it also rewrites the log.
func completeXFSUUID(sys system.System, path string, s xfsSuperblock) error {
	if !s.hasMetaUUID() {
		return nil
	}
	for group := int64(1); group < s.groups(); group++ {
		offset := group * s.groupSize()
		found, err := sys.ReadDirect(path, offset, s.sectorSize())
		if err != nil {
			return err
		}
		if other := xfsSuperblock(found); other.isValid() && !bytes.Equal(other.uuid(), s.uuid()) {
			if err := writeSynced(sys, path, other.withUUID(s), offset); err != nil {
				return err
			}
		}
	}
	return nil
}
