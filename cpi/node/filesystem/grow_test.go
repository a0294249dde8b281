//go:build linux

package filesystem_test

import (
	"context"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/filesystem"
	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/test/harness/filesystems"
)

var _ = Describe("Make", func() {
	DescribeTable("creates a filesystem with the UUID:", func(kind string, bytes, kib, expected int64) {
		sys := newRoot(bytes)
		Expect(filesystem.Make(context.Background(), sys, path, kind, uuid, kib)).To(Succeed())
		Expect(filesystem.Identify(sys, path)).To(Equal(filesystem.Info{Type: kind, UUID: uuid, SizeBytes: expected}))
	},
		Entry("ext4", "ext4", int64(16*mib), int64(0), int64(16*mib)),
		Entry("ext4 on a part of the device", "ext4", int64(16*mib), int64(16*1024-4), int64(16*mib-4096)),
		Entry("XFS", "xfs", int64(xfsBytes), int64(xfsBytes/1024-4), int64(xfsBytes)),
	)

	It("fails for another type", func() {
		err := filesystem.Make(context.Background(), newRoot(16*mib), path, "btrfs", uuid, 0)
		Expect(api.ResultOf(err, "")).To(Equal(api.Result{Version: api.Version, Code: "unknown-filesystem", Message: "unknown filesystem btrfs"}))
	})

	It("reports what mkfs prints", func() {
		err := filesystem.Make(context.Background(), newRoot(4096), path, "ext4", uuid, 0)
		Expect(err).To(MatchError(MatchRegexp(`mkfs\.ext4 .*: exit status 1: .*Not enough space`)))
	})
})

var _ = Describe("Grow", func() {
	grow := func(sys system.System) error { return filesystem.Grow(context.Background(), sys, path) }

	// newDisk returns a loop device on which a filesystem with a file uses only a part of the device.
	newDisk := func(kind string, bytes, growth int64, arguments ...string) system.System { //nolint:unparam // see "the kernel does not mount it"
		GinkgoHelper()
		sys := newRoot(bytes)
		mkfs(sys, kind, arguments...)
		Expect(os.Truncate(sys.Path(path), bytes+growth)).To(Succeed())
		useLoop(sys)
		writeFile(sys)
		return sys
	}

	DescribeTable("grows a filesystem to the size of the device:", func(kind string, bytes int64, dirty bool) {
		sys := newDisk(kind, bytes, 64*mib)
		if dirty {
			makeDirty(sys)
		}
		Expect(grow(sys)).To(Succeed())
		Expect(filesystem.Identify(sys, path)).To(HaveField("SizeBytes", bytes+64*mib))
		filesystems.ExpectValid(sys, path, kind)
		expectFile(sys)
	},
		Entry("ext4", "ext4", int64(16*mib), false),
		Entry("ext4 with a journal to replay", "ext4", int64(16*mib), true),
		Entry("XFS", "xfs", int64(xfsBytes), false),
		Entry("XFS with a log to replay", "xfs", int64(xfsBytes), true),
	)

	It("does not grow it by less than 1 MiB", func() {
		sys := newRoot(16 * mib)
		mkfs(sys, "ext4")
		Expect(os.Truncate(sys.Path(path), 17*mib-1)).To(Succeed())
		Expect(grow(sys)).To(Succeed())
		Expect(filesystem.Identify(sys, path)).To(HaveField("SizeBytes", int64(16*mib)))
	})

	It("does not change other content", func() {
		sys := newRoot(16 * mib)
		mkfs(sys, "ext3")
		before := read(sys, 0, mib)
		Expect(os.Truncate(sys.Path(path), 32*mib)).To(Succeed())
		Expect(grow(sys)).To(Succeed())
		Expect(read(sys, 0, mib)).To(Equal(before))
	})

	It("fails for an XFS filesystem that the kernel does not mount", func() {
		sys := newDisk("xfs", xfsBytes, 16*mib)
		write(sys, 108, []byte("label")) // with a wrong checksum
		Expect(grow(sys)).To(MatchError(filesystem.ErrDamaged))
	})

	// recordErrors records in the superblock that the kernel found errors.
	recordErrors := func(sys system.System) {
		GinkgoHelper()
		filesystems.Run("debugfs", "-w", "-R", "set_super_value state 3", sys.Path(path))
	}

	Describe("of ext4 while it is mounted", func() {
		growMounted := func(sys system.System) error { return filesystem.GrowMountedExt4(context.Background(), sys, path) }
		// requireMount is a fake resize2fs that fails if the filesystem is not mounted.
		const requireMount = `grep -q " $(dirname "$1")/mnt/grow ext4 rw,nosuid,nodev,noexec,noatime" /proc/mounts`

		It("runs resize2fs after the mount, and then unmounts", func() {
			sys := newDisk("ext4", 16*mib, 16*mib)
			filesystems.FakeProgram("resize2fs", requireMount)
			Expect(growMounted(sys)).To(Succeed())
			Expect(filesystem.UnmountLeftover(failCall(sys, 1, unix.EINVAL))).To(Succeed())
			filesystems.Run("e2fsck", "-n", sys.Path(path))
		})

		It("lets e2fsck repair recorded errors first, because the kernel does not grow the filesystem otherwise", func() {
			sys := newDisk("ext4", 16*mib, 16*mib)
			recordErrors(sys)
			filesystems.FakeProgram("resize2fs", requireMount)
			Expect(growMounted(sys)).To(Succeed())
			Expect(filesystems.Run("dumpe2fs", "-h", sys.Path(path))).To(MatchRegexp("Filesystem state: +clean\n"))
		})

		It("fails if e2fsck does not repair them", func() {
			sys := newDisk("ext4", 16*mib, 16*mib)
			recordErrors(sys)
			filesystems.FakeProgram("e2fsck", "exit 4")
			Expect(growMounted(sys)).To(MatchError("it has errors that e2fsck does not repair automatically"))
		})

		It("fails if the kernel does not mount it", func() {
			sys := newDisk("ext4", 16*mib, 16*mib, "-b", "1024")
			write(sys, 2*1024, make([]byte, 1024)) // the group descriptors
			Expect(growMounted(sys)).To(MatchError(And(HavePrefix("it has errors: mount /mnt/grow: "), HaveSuffix("; repair it with e2fsck or xfs_repair"))))
		})

		It("unmounts it if resize2fs fails", func() {
			sys := newDisk("ext4", 16*mib, 16*mib)
			filesystems.FakeProgram("resize2fs", "exit 1")
			Expect(growMounted(sys)).To(MatchError(ContainSubstring("exit status 1")))
			filesystems.Run("e2fsck", "-n", sys.Path(path))
		})
	})

	It("checks ext4 first", func() {
		sys := newDisk("ext4", 16*mib, 16*mib)
		recordErrors(sys)
		Expect(grow(sys)).To(Succeed())
		filesystems.ExpectValid(sys, path, "ext4")
		expectFile(sys)
	})

	It("fails if e2fsck does not repair the filesystem", func() {
		sys := newDisk("ext4", 16*mib, 16*mib)
		recordErrors(sys)
		filesystems.FakeProgram("e2fsck", "exit 4")
		Expect(grow(sys)).To(MatchError(filesystem.ErrDamaged))
	})

	It("fails if e2fsck is killed", func() {
		sys := newDisk("ext4", 16*mib, 16*mib)
		recordErrors(sys)
		filesystems.FakeProgram("e2fsck", "kill -9 $$")
		Expect(grow(sys)).To(MatchError("run e2fsck: signal: killed"))
	})

	It("unmounts what an earlier attempt left", func() {
		sys := newDisk("ext4", 16*mib, 0)
		Expect(filesystem.UnmountLeftover(sys)).To(Succeed(), "there is no directory yet")
		Expect(sys.MkdirAll("/mnt/grow", 0o700)).To(Succeed())
		filesystems.Run("mount", sys.Path(path), sys.Path("/mnt/grow"))
		Expect(filesystem.UnmountLeftover(sys)).To(Succeed())
		Expect(filesystem.UnmountLeftover(sys)).To(Succeed(), "nothing is mounted")
		Expect(filesystem.UnmountLeftover(failCall(sys, 1, unix.EBUSY))).To(MatchError(unix.EBUSY))
	})
})
