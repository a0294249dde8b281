//go:build linux

package volume_test

import (
	"context"
	"os"
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

// withSize returns the disk with another size.
func withSize(disk api.Disk, mebibytes int64) api.Disk {
	disk.SizeMiB = mebibytes
	return disk
}

// preallocated returns the disk with preallocate.
func preallocated(disk api.Disk) api.Disk {
	disk.Preallocate = true
	return disk
}

// huge is the size of a disk for which no volume has space.
const huge = int64(1) << 40

var _ = Describe("A Filesystem volume", func() {
	var sys system.System
	BeforeEach(func() {
		filesystems.NeedsRoot()
		sys = newFilesystemVolume()
	})

	allocated := func(path string) int64 {
		GinkgoHelper()
		stat, err := sys.Stat(path)
		Expect(err).NotTo(HaveOccurred())
		return stat.Blocks * 512
	}

	DescribeTable("gets an image file with a filesystem and a loop device, once", func(disk api.Disk) {
		writeFile(sys, image+".new", "of an interrupted attachment")
		prepared := mustPrepare(sys, disk)
		Expect(loops(sys)).To(HaveLen(1))
		Expect(sys.Path(prepared.Path)).To(BeAnExistingFile())
		Expect(device.NumbersOf(sys, prepared.Path)).To(Equal(prepared.Numbers))
		Expect(prepared.Verify()).To(Succeed())
		Expect(sys.Path(image + ".new")).NotTo(BeAnExistingFile())
		filesystems.WhileMounted(sys, prepared.Path, func(directory string) { Expect(os.WriteFile(directory+"/data", nil, 0o600)).To(Succeed()) })
		free(prepared, sys)
		again := mustPrepare(sys, disk)
		expectFilesystem(sys, again.Path, disk)
		filesystems.WhileMounted(sys, again.Path, func(directory string) { Expect(directory + "/data").To(BeAnExistingFile()) })
		Expect(again.Free()).To(Succeed())
	},
		Entry("ext4", ext4Disk),
		Entry("XFS", xfsDisk),
	)

	It("synchronizes the image file before it gets its name, and then its directory", func() {
		var calls []string
		sys.Before = func(call, path string) error {
			if call == "fsync" || call == "rename" || call == "exec" && strings.HasPrefix(path, "mkfs") {
				calls = append(calls, call+" "+path)
			}
			return nil
		}
		mustPrepare(sys, ext4Disk)
		Expect(calls).To(Equal([]string{"exec mkfs.ext4", "fsync /volume/disk.img.new", "rename /volume/disk.img.new", "fsync /volume"}))
	})

	It("keeps the loop device of a killed attachment", func() {
		killed := mustPrepare(sys, ext4Disk)
		Expect(killed.Close()).To(Succeed())
		Expect(killed.Close()).To(Succeed(), "again")
		Expect(mustPrepare(sys, ext4Disk).Numbers).To(Equal(killed.Numbers))
		Expect(loops(sys)).To(HaveLen(1))
	})

	DescribeTable("never gets a new image file if a VM had the disk", func(disk api.Disk, record, publish bool) {
		if record { // on another node, which lost the volume and the marker
			recordFormatted(sys, "device")
		}
		if publish {
			prepared := mustPrepare(sys, disk)
			Expect(prepared.MarkPublished()).To(Succeed())
			free(prepared, sys)
			Expect(os.Remove(sys.Path(image))).To(Succeed())
		}
		_, err := prepare(sys, disk)
		expectCode(err, "volume-blank", "is blank, but the disk had a filesystem")
		calls := countCalls(sys, func(sys system.System) { Expect(prepare(sys, disk)).Error().To(HaveOccurred()) })
		for n := range calls {
			for _, errno := range []unix.Errno{unix.EIO, unix.ENOMEM, unix.EINTR} {
				_, err := prepare(failCall(sys, n+1, errno), disk)
				Expect(err).To(HaveOccurred())
			}
		}
		Expect(sys.ReadDir("/volume")).To(BeEmpty())
	},
		Entry("according to its PVC when the Pod was created", formatted(ext4Disk), false, false),
		Entry("according to its PVC since then", ext4Disk, true, false),
		Entry("according to the marker of this Pod", ext4Disk, false, true),
	)

	It("gets an image file while the record has no value", func() {
		recordFormatted(sys, "")
		mustPrepare(sys, ext4Disk)
	})

	It("gets an image file although the CPI records meanwhile that it has one, because a kubelet reported the attachment too early", func() {
		prepared := mustPrepare(recordingFormatted(sys, image), ext4Disk)
		expectFilesystem(sys, prepared.Path, ext4Disk)
	})

	It("does not format an image file that became blank", func() {
		prepared := mustPrepare(sys, ext4Disk)
		Expect(prepared.MarkPublished()).To(Succeed())
		free(prepared, sys)
		Expect(os.Truncate(sys.Path(image), 0)).To(Succeed())
		_, err := prepare(sys, ext4Disk)
		expectCode(err, "volume-blank", "is blank, but the disk had a filesystem")
		expectFreed(sys) // because it was not published
	})

	It("keeps the loop device of an earlier attachment if it fails", func() {
		killed := mustPrepare(sys, ext4Disk)
		filesystems.FakeProgram("blkid", "exit 4")
		_, err := prepare(sys, ext4Disk)
		Expect(err).To(HaveOccurred())
		Expect(loops(sys)).To(HaveLen(1))
		Expect(killed.Verify()).To(Succeed())
	})

	DescribeTable("gets an image file if its files are of the storage, and not of a VM:", func(file string, created bool) {
		writeFile(sys, "volume/"+file, "")
		Expect(os.Mkdir(sys.Path("volume/lost+found"), 0o700)).To(Succeed())
		_, err := prepare(sys, ext4Disk)
		if created {
			Expect(err).NotTo(HaveOccurred())
			return
		}
		expectCode(err, "volume-not-blank", "the volume of disk disk-"+uuid+" has files, such as "+file+", but not the disk's image file; "+
			"nothing was changed; attach the disk to a VM with disk_strategy: recreate")
		Expect(sys.Path(image)).NotTo(BeAnExistingFile())
	},
		Entry("of a VM with disk_strategy: recreate", "data", false),
		Entry("of the storage", ".snapshot", true),
	)

	It("gets no image file if it has too little space", func() {
		_, err := prepare(sys, withSize(ext4Disk, huge))
		expectCode(err, "volume-full", " MiB, but the disk needs 1099511627776 MiB")
		Expect(sys.ReadDir("/volume")).To(BeEmpty())
	})

	It("gets no image file if mkfs fails", func() {
		filesystems.FakeProgram("mkfs.ext4", "exit 1")
		_, err := prepare(sys, ext4Disk)
		Expect(err).To(MatchError(HavePrefix("cannot format disk disk-" + uuid + ": mkfs.ext4 ")))
		Expect(sys.Path(image)).NotTo(BeAnExistingFile())
	})

	It("gets an image file in the end, whichever call fails before", func() {
		calls := countCalls(sys, func(sys system.System) { Expect(mustPrepare(sys, ext4Disk).Free()).To(Succeed()) })
		for n := range calls {
			sys := newFilesystemVolume()
			failed, err := volume.Prepare(context.Background(), failCall(sys, n+1, unix.EIO), ext4Disk)
			if err == nil {
				Expect(failed.Close()).To(Succeed())
			}
			prepared, err := volume.Prepare(context.Background(), sys, ext4Disk)
			Expect(err).NotTo(HaveOccurred(), "call %d", n+1)
			Expect(filesystem.Identify(sys, prepared.Path)).To(Equal(filesystem.Info{Type: "ext4", UUID: uuid, SizeBytes: 16 * mib}))
			Expect(loops(sys)).To(HaveLen(1))
			Eventually(prepared.Free).Should(Succeed())
		}
	})

	Describe("with an image file", func() {
		BeforeEach(func() { free(mustPrepare(sys, ext4Disk), sys) })

		It("gets a larger image file, loop device and filesystem if the disk was resized", func() {
			prepared := mustPrepare(sys, withSize(ext4Disk, 32))
			Expect(prepared.Complete(context.Background())).To(Succeed())
			Expect(filesystem.Identify(sys, prepared.Path)).To(HaveField("SizeBytes", int64(32*mib)))
			expectFilesystem(sys, prepared.Path, ext4Disk)
		})

		It("gets a larger loop device if it is resized while the device of a killed attachment exists", func() {
			Expect(mustPrepare(sys, ext4Disk).Close()).To(Succeed())
			prepared := mustPrepare(sys, withSize(ext4Disk, 32))
			Expect(prepared.Complete(context.Background())).To(Succeed())
			Expect(filesystem.Identify(sys, prepared.Path)).To(HaveField("SizeBytes", int64(32*mib)))
		})

		It("does not shrink the image file", func() {
			mustPrepare(sys, withSize(ext4Disk, 8))
			Expect(os.Stat(sys.Path(image))).To(HaveField("Size()", int64(16*mib)))
		})

		It("does not grow the image file if it has too little space", func() {
			_, err := prepare(sys, withSize(ext4Disk, huge))
			expectCode(err, "volume-full", "the volume of disk disk-"+uuid+" has space for ")
			Expect(os.Stat(sys.Path(image))).To(HaveField("Size()", int64(16*mib)))
			Expect(loops(sys)).To(BeEmpty())
		})

		It("counts the blocks of the image file as space for it", func() {
			stat, err := sys.Statfs("/volume")
			Expect(err).NotTo(HaveOccurred())
			free := int64(stat.Bavail) * stat.Bsize / mib
			_, err = prepare(sys, preallocated(withSize(ext4Disk, free+1024)))
			expectCode(err, "volume-full", "has space for ")
		})

		It("allocates all blocks if the disk is preallocated", func() {
			Expect(allocated(image)).To(BeNumerically("<", 16*mib))
			mustPrepare(sys, preallocated(ext4Disk))
			Expect(allocated(image)).To(BeNumerically(">=", 16*mib))
		})

		It("fails if the volume does not support preallocation", func() {
			sys.Before = func(call, _ string) error {
				if call == "fallocate" {
					return unix.EOPNOTSUPP
				}
				return nil
			}
			_, err := prepare(sys, preallocated(ext4Disk))
			expectCode(err, "preallocation-failed", "cannot preallocate disk disk-"+uuid+" on its volume (cloud_properties.preallocate): ")
			Expect(loops(sys)).To(BeEmpty())
		})

		It("does not fail if it cannot allocate the blocks again when the attachment starts again, because the VM waits for its disk", func() {
			writeFile(sys, "/markers/attached", "")
			sys.Before = func(call, _ string) error {
				if call == "fallocate" {
					return unix.ENOSPC
				}
				return nil
			}
			mustPrepare(sys, preallocated(ext4Disk))
		})
	})
})
