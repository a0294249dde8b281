package node_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node"
)

const mib = 1 << 20

// attachment is the environment of an attachment.
var attachment = []string{"DISK=disk-1", "SIZE_MIB=8", "FILESYSTEM=ext4", "VM=bosh/agent-a"}

// attachmentXFS is the environment of an attachment with XFS.
var attachmentXFS = append(slices.Clip(attachment), "FILESYSTEM=xfs")

// attachmentFormatted is the environment of an attachment of a disk that had a filesystem before.
var attachmentFormatted = append(slices.Clip(attachment), "FORMATTED=true")

// readMarks returns the calls that look for the mark of an interrupted mkfs on a Block volume of this size.
func readMarks(mebibytes int) []string {
	calls := []string{readSize}
	for _, sector := range []int{2047, mebibytes*2048 - 1} {
		calls = append(calls, fmt.Sprintf("dd if=/dev/volume bs=512 skip=%d count=1 status=none", sector))
	}
	return calls
}

const (
	makeExt4      = "mkfs.ext4 -q -F -m 1 -E nodiscard,lazy_itable_init=1,lazy_journal_init=1 "
	readSize      = "blockdev --getsize64 /dev/volume"
	readType      = "blkid -p -o value -s TYPE "
	readUUID      = "blkid -p -o value -s UUID "
	makeNode      = "mknod -m 0660 /devices/disk-1.new b "
	listLoops     = "losetup --list --noheadings --output NAME,BACK-MAJ:MIN,BACK-INO"
	readFreeSpace = "df --output=avail --block-size=1M /volume"
)

// isLocked reports whether an attachment holds its lock.
func (f fakeRoot) isLocked() bool {
	lock, err := os.Open(f.path("devices/.disk-1.lock"))
	if err != nil {
		return false
	}
	defer lock.Close()
	return errors.Is(syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// startAttachment starts an attachment, and waits until it publishes its disk.
func (f fakeRoot) startAttachment(env []string) *startedProgram {
	GinkgoHelper()
	r := f.start(node.Attach(), env...)
	r.waitUntil(f.isLocked)
	return r
}

var _ = Describe("The attachment of a Block volume", func() {
	var root fakeRoot
	BeforeEach(func() { root = newFakeRoot() })

	It("formats a blank disk, and then publishes the device", func() {
		root.addDevice("dev/volume", 8, 16, 8*mib, "")
		root.startAttachment(attachment)
		Expect(root.calls()).To(Equal(append(append([]string{readSize}, readMarks(8)...),
			"blkid -p /dev/volume",
			"cmp -n 1048576 /dev/volume /dev/zero",
			"blkdiscard /dev/volume",
			readSize,
			"dd of=/dev/volume bs=512 seek=2047 count=1 conv=sync,notrunc status=none",
			"dd of=/dev/volume bs=512 seek=16383 count=1 conv=sync,notrunc status=none",
			"sync /dev/volume",
			readSize,
			makeExt4+"/dev/volume 8188k",
			"sync /dev/volume",
			"dd if=/dev/volume bs=512 skip=2047 count=1 status=none",
			"dd if=/dev/zero of=/dev/volume bs=512 seek=2047 count=1 conv=notrunc status=none",
			"dd if=/dev/volume bs=512 skip=16383 count=1 status=none",
			"dd if=/dev/zero of=/dev/volume bs=512 seek=16383 count=1 conv=notrunc status=none",
			"sync /dev/volume",
			"open exclusively /dev/volume", // used_by_others
			readType+"/dev/volume",         // set_xfs_uuid
			"open exclusively /dev/volume", // grow_filesystem
			readType+"/dev/volume",
			"dumpe2fs -h /dev/volume",
			"blockdev --getsize64 /dev/volume",
			makeNode+"8 16",
		)))
		Expect(root.read("devices/disk-1")).To(Equal("b 8 16\n"))
		Expect(root.exists("devices/disk-1.new")).To(BeFalse())
	})

	It("creates an XFS filesystem with the UUID of the disk", func() {
		root.addDevice("dev/volume", 8, 16, 8*mib, "")
		root.startAttachment(attachmentXFS)
		Expect(root.calls()).To(ContainElement("mkfs.xfs -q -f -K -m uuid=1 /dev/volume"))
		Expect(root.readFilesystem("8:16")).To(Equal("xfs 1 8388608"))
	})

	It("fails for an unknown filesystem", func() {
		root.addDevice("dev/volume", 8, 16, 8*mib, "")
		status, output := root.run(node.Attach(), append(attachment, "FILESYSTEM=btrfs")...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("cannot format disk disk-1: unknown filesystem btrfs [unknown-filesystem]"))
		Expect(root.exists("devices/disk-1")).To(BeFalse())
	})

	It("publishes a formatted disk without changing it", func() {
		root.addDevice("dev/volume", 8, 16, 8*mib, "ext4 - 8388608\n")
		root.startAttachment(attachment)
		Expect(root.calls()).To(Equal(append(append([]string{readSize}, readMarks(8)...),
			"blkid -p /dev/volume",
			"open exclusively /dev/volume",
			readType+"/dev/volume",
			"open exclusively /dev/volume",
			readType+"/dev/volume",
			"dumpe2fs -h /dev/volume",
			"blockdev --getsize64 /dev/volume",
			makeNode+"8 16",
		)))
	})

	It("fails without changes if the content is unknown", func() {
		root.addDevice("dev/volume", 8, 16, 8*mib, "someone's database")
		status, output := root.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring(
			"the volume of disk disk-1 has data without a known filesystem; nothing was changed [volume-not-blank]"))
		Expect(root.calls()).To(Equal(append(append([]string{readSize}, readMarks(8)...),
			"blkid -p /dev/volume", "cmp -n 1048576 /dev/volume /dev/zero")))
		Expect(root.readFilesystem("8:16")).To(Equal("someone's database"))
		Expect(root.exists("devices/disk-1")).To(BeFalse())
	})

	It("publishes unknown content of a disk that had a filesystem, because a job may have written it", func() {
		root.addDevice("dev/volume", 8, 16, 8*mib, "someone's database")
		root.startAttachment(attachmentFormatted)
		Expect(root.readFilesystem("8:16")).To(Equal("someone's database"))
		Expect(root.exists("devices/disk-1")).To(BeTrue())
	})

	It("publishes unknown content after a reboot of the node, because the VM had the disk", func() {
		root.mkdir("markers") // outlives a reboot of the node
		root.addDevice("dev/volume", 8, 16, 8*mib, "")
		root.startAttachment(attachment).kill()
		Expect(os.RemoveAll(root.path("devices"))).To(Succeed())
		Expect(os.Mkdir(root.path("devices"), 0o755)).To(Succeed())
		root.addDevice("dev/volume", 8, 16, 8*mib, "someone's database")
		root.startAttachment(attachment)
		Expect(root.readFilesystem("8:16")).To(Equal("someone's database"))
	})

	It("does not format a disk that had a filesystem", func() {
		root.addDevice("dev/volume", 8, 16, 8*mib, "")
		status, output := root.run(node.Attach(), attachmentFormatted...)
		Expect(status).To(Equal(1))
		Expect(output).To(And(
			ContainSubstring("the volume of disk disk-1 is blank, but the disk had a filesystem"),
			ContainSubstring("remove the annotation bosh.cloudfoundry.org/formatted of its PVC to use the disk empty [volume-blank]"),
		))
		Expect(root.readFilesystem("8:16")).To(BeEmpty())
	})

	// interruptMkfs kills the attachment while mkfs runs, and sets the content of the disk.
	interruptMkfs := func(env []string, content string) {
		GinkgoHelper()
		root.addDevice("dev/volume", 8, 16, 8*mib, "")
		root.startPausedAt(13, node.Attach(), env, func(r *startedProgram) {
			Expect(root.calls()[12]).To(HavePrefix("mkfs"))
			r.kill()
		})
		disk := filepath.Join(root.state, "disks/8:16")
		file, err := os.OpenFile(disk, os.O_WRONLY, 0)
		Expect(err).NotTo(HaveOccurred())
		_, err = file.WriteString(content)
		Expect(err).NotTo(HaveOccurred())
		Expect(file.Close()).To(Succeed())
		// A VM on another node finds only the disk.
		root.remove("devices")
		root.mkdir("devices")
	}

	DescribeTable("reruns an mkfs that was interrupted for another VM, no matter what content it left", func(content string) {
		interruptMkfs(attachment, content)
		root.startAttachment(append(slices.Clip(attachment), "VM=bosh/agent-b"))
		Expect(root.readFilesystem("8:16")).To(Equal("ext4 - 8388608"))
	},
		Entry("in the first MiB", strings.Repeat("partial filesystem, ", mib/20+1)),
		Entry("or a complete filesystem", "ext4 first-attempt 8388608\n"),
	)

	It("removes the mark after mkfs", func() {
		root.addDevice("dev/volume", 8, 16, 8*mib, "")
		root.startAttachment(attachment).kill()
		Expect(root.readState("disks/8:16")).NotTo(ContainSubstring("\x00bosh-kubernetes-cpi"))
	})

	It("ignores the mark of another disk", func() {
		interruptMkfs(append(slices.Clip(attachment), "DISK=disk-2"), "partial filesystem")
		status, output := root.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring(
			"the volume of disk disk-1 has data without a known filesystem; nothing was changed [volume-not-blank]"))
	})

	It("ignores the mark on a disk that had a filesystem, because a job may have written the content", func() {
		interruptMkfs(attachment, "ext4 job 8388608\n")
		root.startAttachment(attachmentFormatted)
		Expect(root.readFilesystem("8:16")).To(Equal("ext4 job 8388608"))
	})

	It("fails for a device that is smaller than the disk", func() {
		root.addDevice("dev/volume", 8, 16, 7*mib, "ext4 - 7340032\n")
		status, output := root.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("the device of disk disk-1 has 7 MiB, but the disk has 8 MiB"))
		Expect(root.exists("devices/disk-1")).To(BeFalse())
	})

	It("fails for a device that cannot be read", func() {
		root.addDevice("dev/volume", 8, 16, 8*mib, "someone's database")
		root.setState("exit/cmp", "2")
		status, output := root.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("cannot read the volume of disk disk-1"))
	})

	It("checks and grows the filesystem of a disk that was resized", func() {
		root.addDevice("dev/volume", 8, 16, 9*mib, "ext4 - 8388608\n")
		root.startAttachment(attachment)
		Expect(root.calls()[8:]).To(Equal([]string{
			readType + "/dev/volume",
			"dumpe2fs -h /dev/volume",
			"blockdev --getsize64 /dev/volume",
			"e2fsck -f -p /dev/volume",
			"resize2fs /dev/volume",
			makeNode + "8 16",
		}))
		Expect(root.readFilesystem("8:16")).To(Equal("ext4 - 9437184"))
	})

	It("grows a filesystem that e2fsck repaired", func() {
		root.addDevice("dev/volume", 8, 16, 9*mib, "ext4 - 8388608\n")
		root.setState("exit/e2fsck", "1") // e2fsck(8): errors corrected
		root.startAttachment(attachment)
		Expect(root.readFilesystem("8:16")).To(Equal("ext4 - 9437184"))
	})

	It("fails for a filesystem that e2fsck cannot repair", func() {
		root.addDevice("dev/volume", 8, 16, 9*mib, "ext4 - 8388608\n")
		root.setState("exit/e2fsck", "4")
		status, output := root.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring(
			"cannot grow the filesystem of disk disk-1: it has errors that e2fsck does not repair automatically [filesystem-damaged]"))
		Expect(root.calls()).NotTo(ContainElement(HavePrefix("resize2fs")))
		Expect(root.exists("devices/disk-1")).To(BeFalse())
	})

	It("does not grow the filesystem by less than 1 MiB", func() {
		root.addDevice("dev/volume", 8, 16, 9*mib-1, "ext4 - 8388608\n")
		root.startAttachment(attachment)
		Expect(root.readFilesystem("8:16")).To(Equal("ext4 - 8388608"))
	})

	It("grows XFS, which must be mounted for that", func() {
		root.addDevice("dev/volume", 8, 16, 9*mib, "xfs 1 8388608\n")
		root.startAttachment(attachmentXFS)
		Expect(root.calls()[8:]).To(Equal([]string{
			"open exclusively /dev/volume",
			readType + "/dev/volume",
			"xfs_db -r -c sb 0 -c print dblocks blocksize /dev/volume",
			"blockdev --getsize64 /dev/volume",
			"mount -o nouuid /dev/volume /mnt/grow",
			"xfs_growfs /mnt/grow",
			"umount /mnt/grow",
			makeNode + "8 16",
		}))
		Expect(root.readFilesystem("8:16")).To(Equal("xfs 1 9437184"))
	})

	It("replays the journal of an XFS filesystem from a snapshot, and changes its UUID", func() {
		root.addDevice("dev/volume", 8, 16, 8*mib, "xfs source 8388608\n")
		root.startAttachment(attachmentXFS)
		Expect(root.calls()[6:12]).To(Equal([]string{
			readType + "/dev/volume",
			readUUID + "/dev/volume",
			"open exclusively /dev/volume",
			"mount -o nouuid /dev/volume /mnt/replay",
			"umount /mnt/replay",
			"xfs_admin -U 1 /dev/volume",
		}))
		Expect(root.readFilesystem("8:16")).To(Equal("xfs 1 8388608"))
	})

	It("reports which program failed, and exits with status 1", func() {
		root.addDevice("dev/volume", 8, 16, 8*mib, "")
		root.setState("exit/mkfs.ext4", "5")
		status, output := root.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(MatchRegexp(`cannot attach disk disk-1: a command failed with exit status 5: mkfs\.ext4 .* \[disk-attach-failed\]\n$`))
	})
})

var _ = Describe("The attachment of a Filesystem volume", func() {
	var root fakeRoot
	BeforeEach(func() {
		root = newFakeRoot()
		root.write("dev/loop-control", "c 10 237\n")
	})

	// writeImage creates the image file of the disk, which begins with this content.
	writeImage := func(bytes int64, content string) {
		GinkgoHelper()
		root.write("volume/disk.img", content)
		Expect(os.Truncate(root.path("volume/disk.img"), bytes)).To(Succeed())
	}

	It("creates an image file, and renames it when its filesystem is complete and synced", func() {
		root.write("volume/disk.img.new", "of an interrupted attachment")
		root.startAttachment(attachment)
		Expect(root.calls()).To(Equal([]string{
			readFreeSpace,
			makeExt4 + "/volume/disk.img.new",
			"sync /volume/disk.img.new",
			"sync /volume",
			listLoops,
			"losetup --find",
			"mknod /dev/loop0 b 7 0",
			"losetup /dev/loop0 /volume/disk.img",
			"losetup --direct-io=on /dev/loop0",
			"open exclusively /dev/loop0",
			readType + "/dev/loop0",
			"open exclusively /dev/loop0",
			"losetup --set-capacity /dev/loop0",
			readType + "/dev/loop0",
			"dumpe2fs -h /dev/loop0",
			"blockdev --getsize64 /dev/loop0",
			makeNode + "7 0",
		}))
		Expect(firstLine(root.path("volume/disk.img"))).To(Equal("ext4 - 8388608"))
		Expect(root.exists("volume/disk.img.new")).To(BeFalse())
	})

	It("does not create an image file for a disk that had a filesystem", func() {
		status, output := root.run(node.Attach(), attachmentFormatted...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("the volume of disk disk-1 is blank, but the disk had a filesystem"))
		Expect(root.exists("volume/disk.img")).To(BeFalse())
	})

	DescribeTable("does not create an image file on a volume with files, but accepts those of a new filesystem", func(file string, created bool) {
		root.write("volume/"+file, "")
		root.mkdir("volume/lost+found")
		if created {
			root.startAttachment(attachment)
		} else {
			status, output := root.run(node.Attach(), attachment...)
			Expect(status).To(Equal(1))
			Expect(output).To(ContainSubstring("the volume of disk disk-1 has files, such as " + file + ", but not the disk's image file; " +
				"nothing was changed; attach the disk to a VM with disk_strategy: recreate [volume-not-blank]"))
		}
		Expect(root.exists("volume/disk.img")).To(Equal(created))
	},
		Entry("of a VM with disk_strategy: recreate", "data", false),
		Entry("of the storage", ".snapshot", true),
	)

	It("does not create an image file for which the volume has too little space", func() {
		root.setState("volume-free-mib", "7")
		status, output := root.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("the volume of disk disk-1 has space for 7 MiB, but the disk needs 8 MiB [volume-full]"))
		Expect(root.exists("volume/disk.img")).To(BeFalse())
		Expect(root.exists("volume/disk.img.new")).To(BeFalse())
	})

	It("grows the image file, the loop device and the filesystem, in this order", func() {
		writeImage(6*mib, "ext4 - 6291456\n")
		root.startAttachment(attachment)
		Expect(root.calls()[0]).To(Equal(readFreeSpace))
		Expect(root.calls()).To(ContainElements("losetup --set-capacity /dev/loop0", "e2fsck -f -p /dev/loop0", "resize2fs /dev/loop0"))
		Expect(firstLine(root.path("volume/disk.img"))).To(Equal("ext4 - 8388608"))
	})

	It("counts the blocks of the image file as space for it", func() {
		writeImage(6*mib, "ext4 - 6291456\n")
		Expect(os.WriteFile(root.path("volume/disk.img"), append([]byte("ext4 - 6291456\n"), make([]byte, 6*mib)...), 0o600)).To(Succeed())
		root.setState("volume-free-mib", "2")
		root.startAttachment(attachment)
	})

	It("does not grow an image file for which the volume has too little space", func() {
		writeImage(6*mib, "ext4 - 6291456\n")
		root.setState("volume-free-mib", "7")
		status, _ := root.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(firstLine(root.path("volume/disk.img"))).To(Equal("ext4 - 6291456"))
		Expect(root.loops()).To(BeEmpty())
	})

	Describe("with preallocate", func() {
		preallocated := append(slices.Clip(attachment), "PREALLOCATE=true")
		const preallocate = "fallocate --length 8388608 /volume/disk.img"

		It("allocates all blocks, including those discarded by mkfs, before it creates the loop device", func() {
			root.startAttachment(preallocated)
			calls := root.calls()
			Expect(calls).To(ContainElement(preallocate))
			Expect(slices.Index(calls, makeExt4+"/volume/disk.img.new")).To(BeNumerically("<", slices.Index(calls, preallocate)))
			Expect(slices.Index(calls, preallocate)).To(BeNumerically("<", slices.Index(calls, "losetup --find")))
		})

		It("allocates missing blocks at each attachment, for example after a resize", func() {
			writeImage(6*mib, "ext4 - 6291456\n")
			root.startAttachment(preallocated)
			Expect(root.calls()).To(ContainElement(preallocate))
			Expect(firstLine(root.path("volume/disk.img"))).To(Equal("ext4 - 8388608"))
		})

		It("allocates nothing if the volume has too little space", func() {
			writeImage(8*mib, "ext4 - 8388608\n")
			root.setState("volume-free-mib", "7")
			status, output := root.run(node.Attach(), preallocated...)
			Expect(status).To(Equal(1))
			Expect(output).To(ContainSubstring("the volume of disk disk-1 has space for 7 MiB, but the disk needs 8 MiB"))
			Expect(root.calls()).NotTo(ContainElement(preallocate))
		})

		It("fails if the volume does not support preallocation", func() {
			root.setState("exit/fallocate", "1")
			status, output := root.run(node.Attach(), preallocated...)
			Expect(status).To(Equal(1))
			Expect(output).To(ContainSubstring("cannot preallocate disk disk-1 on its volume (cloud_properties.preallocate): " +
				"fallocate: injected failure [preallocation-failed]"))
			Expect(root.loops()).To(BeEmpty())
			Expect(root.exists("devices/disk-1")).To(BeFalse())
		})
	})

	It("does not shrink an image file that is larger than the disk", func() {
		writeImage(9*mib, "ext4 - 9437184\n")
		root.startAttachment(attachment)
		Expect(root.calls()).NotTo(ContainElement(readFreeSpace))
		Expect(firstLine(root.path("volume/disk.img"))).To(Equal("ext4 - 9437184"))
	})

	It("adopts the loop device of a killed attachment", func() {
		killed := root.startAttachment(attachment)
		killed.kill()
		Expect(root.loops()).To(HaveLen(1))
		callsBefore := len(root.calls())
		root.startAttachment(attachment)
		Expect(root.calls()[callsBefore:]).To(ContainElement(listLoops))
		Expect(root.calls()[callsBefore:]).NotTo(ContainElement(HavePrefix("losetup --find")))
		Expect(root.loops()).To(HaveLen(1))
	})

	It("uses the next loop device if another attachment takes the free one first", func() {
		root.setState("competing-image", "")
		root.startAttachment(attachment)
		Expect(root.calls()).To(ContainElement("losetup /dev/loop1 /volume/disk.img"))
		Expect(root.read("devices/disk-1")).To(Equal("b 7 1\n"))
	})

	It("creates the node /dev/loop-control if it does not exist", func() {
		Expect(os.Remove(root.path("dev/loop-control"))).To(Succeed())
		root.startAttachment(attachment)
		Expect(root.read("dev/loop-control")).To(Equal("c 10 237\n"))
	})

	It("frees the loop device when a command fails", func() {
		writeImage(6*mib, "ext4 - 6291456\n")
		root.setState("exit/resize2fs", "3")
		status, output := root.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("cannot attach disk disk-1: a command failed with exit status 3: resize2fs"))
		Expect(root.loops()).To(BeEmpty())
	})
})
