//go:build linux

package filesystem

import (
	"bytes"
	"encoding/binary"

	"bosh-kubernetes-cpi/cpi/node/api"
)

// An xfsSuperblock is struct xfs_dsb of the kernel's fs/xfs/libxfs/xfs_format.h, in a sector of the filesystem. Each allocation group
// starts with one.
type xfsSuperblock []byte

const (
	xfsUUID         = 32
	xfsIncompatible = 216
	xfsChecksum     = 224
	xfsMetaUUID     = 248 // the UUID in the metadata, if the filesystem got another one

	xfsHasMetaUUID = 0x4
	xfsNeedsRepair = 0x10
)

func (s xfsSuperblock) uint32(offset int) uint32 { return binary.BigEndian.Uint32(s[offset:]) }

func (s xfsSuperblock) blockSize() int64 { return int64(s.uint32(4)) }
func (s xfsSuperblock) blocks() int64    { return int64(binary.BigEndian.Uint64(s[8:])) } // at most 2^52
func (s xfsSuperblock) groups() int64    { return int64(s.uint32(88)) }
func (s xfsSuperblock) sectorSize() int  { return int(binary.BigEndian.Uint16(s[102:])) }
func (s xfsSuperblock) uuid() []byte     { return s[xfsUUID:][:16] }

// groupSize returns the size of an allocation group in bytes.
func (s xfsSuperblock) groupSize() int64 { return int64(s.uint32(84)) * s.blockSize() }

// needsRepair reports whether xfs_repair did not finish. The kernel does not mount the filesystem then.
func (s xfsSuperblock) needsRepair() bool { return s.uint32(xfsIncompatible)&xfsNeedsRepair != 0 }

// hasMetaUUID reports whether the metadata has another UUID than the filesystem. Only filesystems with checksums can have that.
func (s xfsSuperblock) hasMetaUUID() bool { return s.uint32(xfsIncompatible)&xfsHasMetaUUID != 0 }

func (s xfsSuperblock) isValid() bool {
	return bytes.HasPrefix(s, []byte("XFSB")) && isBlockSize(s.blockSize()) && isBlockSize(int64(s.sectorSize())) && s.blocks() > 0
}

// isBlockSize reports whether a number can be the size of a block or a sector.
func isBlockSize(bytes int64) bool { return bytes >= 512 && bytes <= 65536 && bytes&(bytes-1) == 0 }

func (s xfsSuperblock) info() Info {
	return Info{Type: api.XFS, UUID: formatUUID(s.uuid()), SizeBytes: s.blocks() * s.blockSize()}
}

// log returns where the log is, in bytes. Its size is 0 if it is on another device. Its address has the number of its allocation group in
// the high bits.
func (s xfsSuperblock) log() (offset, size int64) {
	start, bits := binary.BigEndian.Uint64(s[48:]), s[124]
	if start == 0 {
		return 0, 0
	}
	group, block := int64(start>>bits), int64(start&(1<<bits-1))
	return group*s.groupSize() + block*s.blockSize(), int64(s.uint32(96)) * s.blockSize()
}

// withUUID returns the superblock, a complete sector, with the UUIDs of another superblock.
func (s xfsSuperblock) withUUID(other xfsSuperblock) xfsSuperblock {
	s = bytes.Clone(s)
	copy(s[xfsUUID:], other.uuid())
	copy(s[xfsMetaUUID:][:16], other[xfsMetaUUID:])
	binary.BigEndian.PutUint32(s[xfsIncompatible:], s.uint32(xfsIncompatible)|xfsHasMetaUUID)
	clear(s[xfsChecksum:][:4])
	binary.LittleEndian.PutUint32(s[xfsChecksum:], ^crc32c(s))
	return s
}
