//go:build linux

package filesystem_test

import (
	"context"
	"encoding/binary"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/filesystem"
	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/test/harness/filesystems"
)

// write writes data to the disk.
func write(sys system.System, offset int64, data []byte) {
	GinkgoHelper()
	file, err := os.OpenFile(sys.Path(path), os.O_WRONLY, 0)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	_, err = file.WriteAt(data, offset)
	Expect(err).NotTo(HaveOccurred())
	Expect(file.Sync()).To(Succeed())
}

// read reads data from the disk.
func read(sys system.System, offset int64, length int) []byte {
	GinkgoHelper()
	data, err := sys.ReadDirect(path, offset, length)
	Expect(err).NotTo(HaveOccurred())
	return data
}

var _ = Describe("Identify", func() {
	DescribeTable("returns type, UUID and size of", func(kind string, bytes int64, arguments ...string) {
		sys := newRoot(bytes)
		mkfs(sys, kind, arguments...)
		Expect(filesystem.Identify(sys, path)).To(Equal(filesystem.Info{Type: kind, UUID: otherUUID, SizeBytes: bytes}))
	},
		Entry("ext4 with blocks of 1 KiB", "ext4", int64(16*mib), "-b", "1024"),
		Entry("ext4 with blocks of 4 KiB", "ext4", int64(64*mib), "-b", "4096"),
		Entry("ext4 without 64-bit block numbers", "ext4", int64(16*mib), "-O", "^64bit"),
		Entry("XFS with blocks of 4 KiB", "xfs", int64(xfsBytes)),
		Entry("XFS with blocks of 1 KiB", "xfs", int64(xfsBytes), "-b", "size=1024"),
	)

	It("reads 64-bit block numbers", func() {
		sys := newRoot(16 * mib)
		mkfs(sys, "ext4", "-b", "1024")
		write(sys, 1024+0x150, binary.LittleEndian.AppendUint32(nil, 1))
		Expect(filesystem.Identify(sys, path)).To(HaveField("SizeBytes", int64(1<<42+16*mib)))
	})

	DescribeTable("does not know", func(kind string) {
		sys := newRoot(16 * mib)
		mkfs(sys, kind)
		Expect(filesystem.Identify(sys, path)).Error().To(MatchError(filesystem.ErrUnknown))
	},
		Entry("ext2", "ext2"),
		Entry("ext3", "ext3"),
	)

	It("does not know a blank disk", func() {
		Expect(filesystem.Identify(newRoot(mib), path)).Error().To(MatchError(filesystem.ErrUnknown))
	})

	It("does not choose between two superblocks", func() {
		sys := newRoot(xfsBytes)
		mkfs(sys, "xfs")
		superblock := read(sys, 0, 512)
		mkfs(sys, "ext4")
		write(sys, 0, superblock)
		Expect(filesystem.Identify(sys, path)).Error().To(MatchError(filesystem.ErrUnknown))
	})

	It("reads from the kernel's memory where direct I/O is not supported", func() {
		sys := newRoot(16 * mib)
		mkfs(sys, "ext4")
		Expect(filesystem.Identify(failCall(sys, 1, unix.EINVAL), path)).To(HaveField("UUID", otherUUID))
	})

	It("fails if it cannot read the disk", func() {
		Expect(filesystem.Identify(newRoot(1024), path)).Error().To(MatchError("read /disk: invalid argument"))
		Expect(filesystem.Identify(system.System{Root: GinkgoT().TempDir()}, path)).Error().To(MatchError(os.ErrNotExist))
	})
})

var _ = Describe("Inspect", func() {
	inspect := func(sys system.System) (filesystem.Content, error) {
		return filesystem.Inspect(context.Background(), sys, path)
	}

	It("finds a blank disk", func() {
		Expect(inspect(newRoot(2 * mib))).To(Equal(filesystem.Content{Blank: true}))
	})

	DescribeTable("finds unknown data", func(offset int64) {
		sys := newRoot(2 * mib)
		write(sys, offset, []byte("data"))
		content, err := inspect(sys)
		Expect(err).NotTo(HaveOccurred())
		Expect(content.IsUnknown()).To(BeTrue())
	},
		Entry("at the beginning", int64(0)),
		Entry("at the end of the first MiB", int64(mib-4)),
	)

	DescribeTable("finds a filesystem", func(kind string, bytes int64, supported bool) {
		sys := newRoot(bytes)
		mkfs(sys, kind)
		content, err := inspect(sys)
		Expect(err).NotTo(HaveOccurred())
		Expect(content).To(HaveField("Type", kind))
		Expect(content.IsSupported()).To(Equal(supported))
	},
		Entry("that this package can change: ext4", "ext4", int64(16*mib), true),
		Entry("XFS", "xfs", int64(xfsBytes), true),
		Entry("that it cannot change: ext3", "ext3", int64(16*mib), false),
	)

	It("finds a partition table", func() {
		sys := newRoot(16 * mib)
		sector := make([]byte, 512)
		copy(sector[446:], []byte{0, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0})
		copy(sector[510:], []byte{0x55, 0xaa})
		write(sys, 0, sector)
		Expect(inspect(sys)).To(Equal(filesystem.Content{Info: filesystem.Info{Type: "dos"}}))
	})

	DescribeTable("believes blkid", func(blkid string, known string, makeFilesystem bool) {
		sys := newRoot(16 * mib)
		if makeFilesystem {
			mkfs(sys, "ext4")
		}
		filesystems.FakeProgram("blkid", blkid)
		Expect(inspect(sys)).To(Equal(filesystem.Content{Info: filesystem.Info{Type: known}}))
	},
		Entry("if it finds more than the superblock of ext4", "echo TYPE=crypto_LUKS", "crypto_LUKS", true),
		Entry("if it finds something behind the first MiB", "echo TYPE=linux_raid_member", "linux_raid_member", false),
		Entry("if it finds signs of several types", "exit 8", "", true),
		Entry("if it finds such signs behind the first MiB", "exit 8", "", false),
		Entry("if it does not consider the superblock valid", "exit 2", "", true),
		Entry("if it finds something that is neither a filesystem nor a partition table", "echo USAGE=other", "other", false),
	)

	It("finds a blank disk that is a partition", func() {
		filesystems.FakeProgram("blkid", "echo DEVNAME=/disk; echo PART_ENTRY_SCHEME=gpt; echo PART_ENTRY_NUMBER=1")
		Expect(inspect(newRoot(2 * mib))).To(Equal(filesystem.Content{Blank: true}))
	})

	DescribeTable("fails if blkid", func(blkid, message string) {
		filesystems.FakeProgram("blkid", blkid)
		Expect(inspect(newRoot(2 * mib))).Error().To(MatchError(ContainSubstring(message)))
	},
		Entry("is killed", "kill -9 $$", "run blkid: signal: killed"),
		Entry("cannot read the device", "echo message >&2; exit 2", "cannot inspect /disk: blkid failed with exit status 2: message"),
		Entry("fails", "echo message >&2; exit 4", "cannot inspect /disk: blkid failed with exit status 4: message"),
		Entry("does not start", "exec /nonexistent", "exit status 127"),
	)

	DescribeTable("never gives a wrong response if a call fails", func(fill func(sys system.System)) {
		sys := newRoot(16 * mib)
		fill(sys)
		expected, err := inspect(sys)
		Expect(err).NotTo(HaveOccurred())
		eachFailure(sys, []unix.Errno{unix.EIO, unix.ENOMEM, unix.EINTR}, func(sys system.System, interrupted bool) {
			content, err := inspect(sys)
			if interrupted {
				Expect(err).NotTo(HaveOccurred())
			}
			if err == nil {
				Expect(content).To(Equal(expected))
			} else {
				Expect(content.Blank).To(BeFalse())
			}
		})
	},
		Entry("blank", func(system.System) {}),
		Entry("data", func(sys system.System) { write(sys, mib-4, []byte("data")) }),
		Entry("ext4", func(sys system.System) { mkfs(sys, "ext4") }),
	)
})
