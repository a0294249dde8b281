//go:build linux

package volume_test

import (
	"context"
	"os"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/device"
	"bosh-kubernetes-cpi/cpi/node/filesystem"
	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/cpi/node/volume"
	"bosh-kubernetes-cpi/test/harness/filesystems"
)

var _ = Describe("A Block volume", func() {
	DescribeTable("that is blank is formatted, and not again", func(disk api.Disk) {
		sys := newBlockVolume(disk.SizeMiB)
		prepared := mustPrepare(sys, disk)
		Expect(prepared.Path).To(Equal(block))
		Expect(device.NumbersOf(sys, block)).To(Equal(prepared.Numbers))
		Expect(prepared.Verify()).To(Succeed())
		for _, offset := range []int64{mib - 512, disk.SizeMiB*mib - 512} {
			Expect(sys.ReadDirect(block, offset, 512)).NotTo(ContainElement(byte('b')), "the mark is erased")
		}
		filesystems.WhileMounted(sys, block, func(directory string) { Expect(os.WriteFile(directory+"/data", nil, 0o600)).To(Succeed()) })
		Expect(prepared.Free()).To(Succeed())
		Expect(prepared.Free()).To(Succeed(), "again")
		mustPrepare(sys, disk)
		expectFilesystem(sys, block, disk)
		filesystems.WhileMounted(sys, block, func(directory string) { Expect(directory + "/data").To(BeAnExistingFile()) })
	},
		Entry("ext4", ext4Disk),
		Entry("XFS", xfsDisk),
	)

	DescribeTable("keeps one of the marks until mkfs finishes", func(disk api.Disk, sizeMiB int64) {
		disk.SizeMiB = sizeMiB
		sys := newBlockVolume(sizeMiB)
		original, err := exec.LookPath("mkfs." + disk.Filesystem)
		Expect(err).NotTo(HaveOccurred())
		filesystems.FakeProgram("mkfs."+disk.Filesystem, original+` "$@" && kill -9 $$`)
		_, err = prepare(sys, disk)
		Expect(err).To(MatchError(ContainSubstring("signal: killed")))
		Expect(volume.Formats(context.Background(), sys, disk, block)).To(BeTrue())
	},
		Entry("ext4, 16 MiB", ext4Disk, int64(16)),
		Entry("ext4, 10 GiB", ext4Disk, int64(10<<10)),
		Entry("XFS, 320 MiB", xfsDisk, int64(xfsMiB)),
		Entry("XFS, 10 GiB", xfsDisk, int64(10<<10)),
	)

	DescribeTable("gets the UUID of the disk if it is from a snapshot", func(disk api.Disk) {
		sys := newBlockVolume(disk.SizeMiB)
		mkfs(sys, block, disk.Filesystem, otherUUID)
		Expect(mustPrepare(sys, formatted(disk)).Complete(context.Background())).To(Succeed())
		expectFilesystem(sys, block, disk)
	},
		Entry("ext4", ext4Disk),
		Entry("XFS", xfsDisk),
	)

	It("is not completed while it is in use", func() {
		sys := newBlockVolume(32)
		mkfs(sys, block, "ext4", otherUUID)
		filesystems.Run("resize2fs", sys.Path(block), "16M")
		prepared := mustPrepare(sys, formatted(ext4Disk))
		filesystems.WhileMounted(sys, block, func(string) { Expect(prepared.Complete(context.Background())).To(MatchError(device.ErrBusy)) })
		Expect(filesystem.Identify(sys, block)).To(And(HaveField("UUID", otherUUID), HaveField("SizeBytes", int64(16*mib))))
	})

	It("keeps the filesystem of another type that a job created", func() {
		sys := newBlockVolume(16)
		filesystems.Run("mkfs.ext3", "-q", "-F", "-U", otherUUID, sys.Path(block))
		Expect(os.Truncate(sys.Path("backing"), 32*mib)).To(Succeed())
		prepared := mustPrepare(sys, formatted(ext4Disk))
		Expect(prepared.Complete(context.Background())).To(Succeed())
		Expect(strings.TrimSpace(filesystems.Run("blkid", "-p", "-o", "value", "-s", "UUID", sys.Path(block)))).To(Equal(otherUUID))
	})

	It("is not formatted while it is in use", func() {
		sys := newBlockVolume(16)
		other, err := device.OpenExclusive(sys, block)
		Expect(err).NotTo(HaveOccurred())
		defer other.Close()
		_, err = prepare(sys, ext4Disk)
		expectCode(err, "disk-in-use", "cannot format disk disk-"+uuid+": the device is in use")
	})

	It("fails if it is smaller than the disk", func() {
		_, err := prepare(newBlockVolume(15), ext4Disk)
		expectCode(err, "volume-too-small",
			"the device of disk disk-"+uuid+" has 15 MiB, but the disk has 16 MiB; check whether the storage actually expanded the volume")
	})

	It("fails for an unknown filesystem", func() {
		disk := ext4Disk
		disk.Filesystem = "btrfs"
		_, err := prepare(newBlockVolume(16), disk)
		expectCode(err, "unknown-filesystem", "cannot format disk disk-"+uuid+": unknown filesystem btrfs")
	})

	It("fails for a damaged filesystem of which the UUID must be set", func() {
		sys := newBlockVolume(xfsMiB)
		mkfs(sys, block, "xfs", otherUUID)
		writeAt(sys, block, 108, "label") // the checksum is wrong then
		filesystems.FakeProgram("blkid", "echo TYPE=xfs")
		err := mustPrepare(sys, formatted(xfsDisk)).Complete(context.Background())
		expectCode(err, "filesystem-damaged", "cannot set the UUID of the filesystem of disk disk-"+uuid+": it has errors: ")
	})

	It("records that it was published, also again", func() {
		prepared := mustPrepare(newBlockVolume(16), ext4Disk)
		Expect(prepared.MarkPublished()).To(Succeed())
		Expect(prepared.MarkPublished()).To(Succeed())
		Expect(prepared.Free()).To(Succeed())
	})

	It("is not blank by intention after it was published", func() {
		sys := newBlockVolume(16)
		prepared := mustPrepare(sys, ext4Disk)
		Expect(prepared.MarkPublished()).To(Succeed())
		filesystems.Run("blkdiscard", "--force", "--zeroout", sys.Path(block))
		_, err := prepare(sys, ext4Disk)
		expectCode(err, "volume-blank", "is blank, but the disk had a filesystem")
	})

	It("is formatted although the CPI records meanwhile that it is, because a kubelet reported the attachment too early", func() {
		sys := newBlockVolume(16)
		mustPrepare(recordingFormatted(sys, block), ext4Disk)
		expectFilesystem(sys, block, ext4Disk)
	})

	It("is not published without a record", func() {
		sys := newBlockVolume(16)
		prepared := mustPrepare(sys, ext4Disk)
		Expect(os.Remove(sys.Path("markers"))).To(Succeed())
		Expect(prepared.MarkPublished()).To(MatchError(os.ErrNotExist))
	})

	It("is formatted in the end, whichever call fails before", func() {
		reference := newBlockVolume(16)
		calls := countCalls(reference, func(sys system.System) { mustPrepare(sys, ext4Disk) })
		sys := newBlockVolume(16)
		for n := range calls {
			filesystems.Run("blkdiscard", "--force", "--zeroout", sys.Path(block))
			device, err := volume.Prepare(context.Background(), failCall(sys, n+1, unix.EIO), ext4Disk)
			if err == nil {
				Expect(device.Close()).To(Succeed())
			}
			device, err = volume.Prepare(context.Background(), sys, ext4Disk)
			Expect(err).NotTo(HaveOccurred(), "call %d", n+1)
			Expect(device.Close()).To(Succeed())
			Expect(filesystem.Identify(sys, block)).To(HaveField("UUID", uuid))
		}
		expectFilesystem(sys, block, ext4Disk)
	})
})

var _ = Describe("Growing a disk", func() {
	DescribeTable("grows the filesystem to the size of the device", func(disk api.Disk) {
		sys := newBlockVolume(disk.SizeMiB)
		Expect(mustPrepare(sys, disk).Complete(context.Background())).To(Succeed())
		Expect(os.Truncate(sys.Path("backing"), 2*disk.SizeMiB*mib)).To(Succeed())
		filesystems.Run("losetup", "--set-capacity", sys.Path(block))
		awaitFree(sys)
		Expect(mustPrepare(sys, disk).Complete(context.Background())).To(Succeed())
		Expect(filesystem.Identify(sys, block)).To(HaveField("SizeBytes", 2*disk.SizeMiB*mib))
		expectFilesystem(sys, block, disk)
	},
		Entry("ext4", ext4Disk),
		Entry("XFS", xfsDisk),
	)

	It("fails if the filesystem has errors", func() {
		sys := newBlockVolume(32)
		mkfs(sys, block, "ext4", otherUUID)
		filesystems.Run("resize2fs", sys.Path(block), "16M")
		prepared := mustPrepare(sys, ext4Disk)
		Expect(filesystem.SetUUID(context.Background(), sys, block, uuid)).To(Succeed())
		filesystems.Run("debugfs", "-w", "-R", "set_super_value state 3", sys.Path(block))
		filesystems.FakeProgram("e2fsck", "exit 4")
		expectCode(prepared.Complete(context.Background()), "filesystem-damaged",
			"cannot grow the filesystem of disk disk-"+uuid+": it has errors that e2fsck does not repair automatically")
	})

	It("fails if it does not know whether the device is in use", func() {
		sys := newBlockVolume(16)
		failing := false
		sys.Before = func(call, path string) error {
			if failing && call == "open" && path == block {
				return unix.EIO
			}
			return nil
		}
		prepared := mustPrepare(sys, ext4Disk)
		failing = true
		Expect(prepared.Complete(context.Background())).To(MatchError(unix.EIO))
	})
})
