//go:build linux

package filesystem

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// SetUUID sets the UUID of an ext4 or XFS filesystem, which must not be in use, and checks that it was set. A disk created from a snapshot
// has the UUID of its source: the start of a VM could mount the wrong one, and XFS does not mount two filesystems with the same UUID. The
// journal is replayed first: it contains the UUID, too. SetUUID also completes the change after it was killed at any point.
func SetUUID(ctx context.Context, sys system.System, path, uuid string) error {
	superblock, err := readSuperblock(sys, path)
	if err != nil {
		return err
	}
	if superblock.info().UUID != uuid {
		switch superblock := superblock.(type) {
		case ext4Superblock:
			err = setExt4UUID(ctx, sys, path, superblock, uuid)
		case xfsSuperblock:
			err = setXFSUUID(ctx, sys, path, superblock, uuid)
		}
		if err == nil {
			err = checkUUID(sys, path, uuid)
		}
	} else if xfs, ok := superblock.(xfsSuperblock); ok {
		err = completeXFSUUID(sys, path, xfs)
	}
	return err
}

func checkUUID(sys system.System, path, uuid string) error {
	info, err := Identify(sys, path)
	if err == nil && info.UUID != uuid {
		err = fmt.Errorf("it has the UUID %s instead of %s", info.UUID, uuid)
	}
	return err
}

// setExt4UUID writes the UUID in one piece. tune2fs first writes the UUID and then its checksum: the kernel and e2fsck reject what it
// leaves if it is killed between. If the checksums depend on the UUID, it rewrites all of them, after a complete e2fsck.
func setExt4UUID(ctx context.Context, sys system.System, path string, s ext4Superblock, uuid string) error {
	if s.needsRecovery() {
		if err := whileMounted(sys, path, api.Ext4, func() error { return nil }); err != nil {
			return err
		}
		replayed, err := readSuperblock(sys, path)
		if err != nil {
			return err
		}
		var ok bool
		if s, ok = replayed.(ext4Superblock); !ok || s.needsRecovery() {
			return fmt.Errorf("%w: the journal cannot be replayed; repair it with e2fsck or xfs_repair", ErrDamaged)
		}
	}
	if s.readOnly()&(hasChecksums|hasGroupChecksums) == hasGroupChecksums {
		_, err := sys.MustRun(ctx, "tune2fs", "-U", uuid, sys.Path(path)) // these checksums depend on the UUID
		return err
	}
	changed, err := s.withUUID(uuid)
	if err != nil {
		return err
	}
	return writeSynced(sys, path, changed, ext4Offset)
}

// withUUID returns the superblock with another UUID. The checksums of the filesystem start with a checksum of the UUID, unless the
// superblock has another start, the seed: then they remain valid.
func (s ext4Superblock) withUUID(uuid string) (ext4Superblock, error) {
	id, err := parseUUID(uuid)
	if err != nil {
		return nil, err
	}
	if s.compatible()&hasStableInodes != 0 {
		return nil, errors.New("it has encrypted files that cannot be read with another UUID")
	}
	checksums := s.readOnly()&hasChecksums != 0
	if checksums && s.uint32(ext4Checksum) != s.checksum() {
		return nil, fmt.Errorf("%w: the checksum of the superblock is wrong; repair it with e2fsck or xfs_repair", ErrDamaged)
	}
	s = bytes.Clone(s)
	if checksums && s.incompatible()&hasChecksumSeed == 0 {
		s.setUint32(ext4ChecksumSeed, crc32c(s[ext4UUID:][:16]))
		s.setUint32(ext4Incompatible, s.incompatible()|hasChecksumSeed)
	}
	copy(s[ext4UUID:], id)
	if checksums {
		s.setUint32(ext4Checksum, s.checksum())
	}
	return s, nil
}

func writeSynced(sys system.System, path string, data []byte, offset int64) error {
	file, err := sys.Open(path, unix.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.WriteAt(data, offset); err != nil {
		return err
	}
	return file.Sync()
}
