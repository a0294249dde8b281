//go:build linux

package filesystem

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strings"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// Identify returns the ext4 or XFS filesystem on a device or in an image file. The error is ErrUnknown if there is none. Inspect decides
// whether other content is blank.
func Identify(sys system.System, path string) (Info, error) {
	superblock, err := readSuperblock(sys, path)
	if err != nil {
		return Info{}, err
	}
	return superblock.info(), nil
}

type superblock interface{ info() Info }

// headSize is the size of the beginning of a device that has the superblocks of both filesystems.
const headSize = 4096

// readSuperblock returns the superblock of an ext4 or XFS filesystem, or ErrUnknown, also if there are both: then one of them is the rest
// of an earlier filesystem.
func readSuperblock(sys system.System, path string) (superblock, error) {
	head, err := sys.ReadDirect(path, 0, headSize)
	if err != nil {
		return nil, err
	}
	ext4, xfs := ext4Superblock(head[ext4Offset:][:ext4Size]), xfsSuperblock(head[:512])
	switch {
	case ext4.isValid() && !xfs.isValid():
		return ext4, nil
	case xfs.isValid() && !ext4.isValid():
		return xfs, nil
	}
	return nil, ErrUnknown
}

// An ext4Superblock is struct ext4_super_block of the kernel's fs/ext4/ext4.h.
type ext4Superblock []byte

const (
	ext4Offset = 1024
	ext4Size   = 1024
	ext4Magic  = 0xef53

	// Offsets in the superblock.
	ext4State           = 0x3a
	ext4Incompatible    = 0x60
	ext4UUID            = 0x68
	ext4ChecksumSeed    = 0x270
	ext4Checksum        = 0x3fc
	ext4MaxBlockSizeLog = 6 // 64 KiB

	// Flags. The two masks are the features of ext2 and ext3.
	ext4ErrorsDetected = 0x2
	journalDevice      = 0x8
	needsRecovery      = 0x4
	has64Bit           = 0x80
	hasChecksumSeed    = 0x2000
	ext3Incompatible   = 0x16
	ext3ReadOnly       = 0x7
	hasGroupChecksums  = 0x10
	hasChecksums       = 0x400
	hasStableInodes    = 0x800
)

func (s ext4Superblock) uint16(offset int) uint16 { return binary.LittleEndian.Uint16(s[offset:]) }
func (s ext4Superblock) uint32(offset int) uint32 { return binary.LittleEndian.Uint32(s[offset:]) }

func (s ext4Superblock) setUint32(offset int, value uint32) {
	binary.LittleEndian.PutUint32(s[offset:], value)
}

// compatible, incompatible and readOnly return the feature flags of the filesystem.
func (s ext4Superblock) compatible() uint32   { return s.uint32(0x5c) }
func (s ext4Superblock) incompatible() uint32 { return s.uint32(ext4Incompatible) }
func (s ext4Superblock) readOnly() uint32     { return s.uint32(0x64) }

// isValid reports whether the superblock is that of an ext4 filesystem, and not of ext2 or ext3, which have the same magic number.
func (s ext4Superblock) isValid() bool {
	return s.uint16(0x38) == ext4Magic && s.uint32(0x18) <= ext4MaxBlockSizeLog && s.blocks() > 0 && s.incompatible()&journalDevice == 0 &&
		(s.incompatible()&^ext3Incompatible != 0 || s.readOnly()&^ext3ReadOnly != 0)
}

func (s ext4Superblock) blocks() int64 {
	blocks := uint64(s.uint32(0x4))
	if s.incompatible()&has64Bit != 0 {
		blocks |= uint64(s.uint32(0x150)) << 32
	}
	return int64(blocks) // at most 2^48
}

func (s ext4Superblock) info() Info {
	return Info{Type: api.Ext4, UUID: formatUUID(s[ext4UUID:]), SizeBytes: s.blocks() << (10 + s.uint32(0x18))}
}

// hasErrors reports whether the kernel or e2fsck found errors that were not repaired.
func (s ext4Superblock) hasErrors() bool { return s.uint16(ext4State)&ext4ErrorsDetected != 0 }

// needsRecovery reports whether the journal has changes that are not in the filesystem yet.
func (s ext4Superblock) needsRecovery() bool { return s.incompatible()&needsRecovery != 0 }

// checksum returns the checksum of the superblock.
func (s ext4Superblock) checksum() uint32 { return crc32c(s[:ext4Checksum]) }

// formatUUID returns the text of the UUID at the beginning of the bytes.
func formatUUID(b []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

func isZero(data []byte) bool { return len(bytes.TrimLeft(data, "\x00")) == 0 }

// crc32c returns the checksum that ext4 uses: that of RFC 3720 without the last inversion.
func crc32c(data []byte) uint32 { return ^crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) }

// parseUUID returns the bytes of a UUID.
func parseUUID(text string) ([]byte, error) {
	id, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(id) != 16 {
		return nil, fmt.Errorf("%q is not a UUID", text)
	}
	return id, nil
}
