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

	"bosh-kubernetes-cpi/kube/manifest/node"
)

const mib = 1 << 20

// attachment is the environment of a disk's attachment.
var attachment = []string{"DISK=disk-1", "SIZE_MIB=8", "FILESYSTEM=ext4", "VM=bosh/agent-a"}

// attachmentXFS is that of one whose filesystem is another.
var attachmentXFS = append(slices.Clip(attachment), "FILESYSTEM=xfs")

// attachmentFormatted is that of one whose disk had its filesystem once.
var attachmentFormatted = append(slices.Clip(attachment), "FORMATTED=true")

// readMarks are the calls that look for the mark of a filesystem that was begun on a Block volume of so many MiB.
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

// isLocked reports whether an attachment holds its disk: the lock is what others go by.
func (w fakeRoot) isLocked() bool {
	lock, err := os.Open(w.path("devices/.disk-1.lock"))
	if err != nil {
		return false
	}
	defer lock.Close()
	return errors.Is(syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// startAttachment starts an attachment and waits until it holds its disk.
func (w fakeRoot) startAttachment(env []string) *startedProgram {
	GinkgoHelper()
	r := w.start(node.Attach(), env...)
	r.waitUntil(w.isLocked)
	return r
}

var _ = Describe("An attachment of a Block claim", func() {
	var w fakeRoot
	BeforeEach(func() { w = newFakeRoot() })

	It("makes the filesystem of a blank disk, and then publishes the device", func() {
		w.addDevice("dev/volume", 8, 16, 8*mib, "")
		w.startAttachment(attachment)
		Expect(w.calls()).To(Equal(append(append([]string{readSize}, readMarks(8)...),
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
			"exclusively /dev/volume", // is it used by others?
			readType+"/dev/volume",    // is it another's XFS?
			"exclusively /dev/volume", // may it be grown?
			readType+"/dev/volume",
			"dumpe2fs -h /dev/volume",
			"blockdev --getsize64 /dev/volume",
			makeNode+"8 16",
		)))
		Expect(w.read("devices/disk-1")).To(Equal("b 8 16\n"))
		Expect(w.exists("devices/disk-1.new")).To(BeFalse())
	})

	It("makes XFS where that is asked for, with the disk's own UUID", func() {
		w.addDevice("dev/volume", 8, 16, 8*mib, "")
		w.startAttachment(attachmentXFS)
		Expect(w.calls()).To(ContainElement("mkfs.xfs -q -f -K -m uuid=1 /dev/volume"))
		Expect(w.readFilesystem("8:16")).To(Equal("xfs 1 8388608"))
	})

	It("fails for a filesystem that is not known", func() {
		w.addDevice("dev/volume", 8, 16, 8*mib, "")
		status, output := w.run(node.Attach(), append(attachment, "FILESYSTEM=btrfs")...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("disk disk-1: filesystem btrfs is not known"))
		Expect(w.exists("devices/disk-1")).To(BeFalse())
	})

	It("publishes a disk with a filesystem as it is", func() {
		w.addDevice("dev/volume", 8, 16, 8*mib, "ext4 - 8388608\n")
		w.startAttachment(attachment)
		Expect(w.calls()).To(Equal(append(append([]string{readSize}, readMarks(8)...),
			"blkid -p /dev/volume",
			"exclusively /dev/volume",
			readType+"/dev/volume",
			"exclusively /dev/volume",
			readType+"/dev/volume",
			"dumpe2fs -h /dev/volume",
			"blockdev --getsize64 /dev/volume",
			makeNode+"8 16",
		)))
	})

	It("leaves content untouched that it does not know", func() {
		w.addDevice("dev/volume", 8, 16, 8*mib, "someone's database")
		status, output := w.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("its volume holds data without a filesystem that is known here; it is left untouched"))
		Expect(w.calls()).To(Equal(append(append([]string{readSize}, readMarks(8)...), "blkid -p /dev/volume", "cmp -n 1048576 /dev/volume /dev/zero")))
		Expect(w.readFilesystem("8:16")).To(Equal("someone's database"))
		Expect(w.exists("devices/disk-1")).To(BeFalse())
	})

	It("publishes content that it does not know as it is, once the disk has had its filesystem: it is a job's", func() {
		w.addDevice("dev/volume", 8, 16, 8*mib, "someone's database")
		w.startAttachment(attachmentFormatted)
		Expect(w.readFilesystem("8:16")).To(Equal("someone's database"))
		Expect(w.exists("devices/disk-1")).To(BeTrue())
	})

	It("has had its filesystem when the attachment has shown it to its machine, and is started again at a node's boot", func() {
		w.mkdir("marks") // the attachment's own, which outlives that
		w.addDevice("dev/volume", 8, 16, 8*mib, "")
		w.startAttachment(attachment).kill()
		Expect(os.RemoveAll(w.path("devices"))).To(Succeed())
		Expect(os.Mkdir(w.path("devices"), 0o755)).To(Succeed())
		w.addDevice("dev/volume", 8, 16, 8*mib, "someone's database")
		w.startAttachment(attachment)
		Expect(w.readFilesystem("8:16")).To(Equal("someone's database"))
	})

	It("does not make a filesystem on a disk that had one once", func() {
		w.addDevice("dev/volume", 8, 16, 8*mib, "")
		status, output := w.run(node.Attach(), attachmentFormatted...)
		Expect(status).To(Equal(1))
		Expect(output).To(And(ContainSubstring("disk disk-1: it had a filesystem once, and its volume is blank"), ContainSubstring("bosh.cloudfoundry.org/formatted")))
		Expect(w.readFilesystem("8:16")).To(BeEmpty())
	})

	// cutShort has mkfs die on a disk, for the VM that has the folder of devices, and leave something.
	interruptMkfs := func(env []string, remains string) {
		GinkgoHelper()
		w.addDevice("dev/volume", 8, 16, 8*mib, "")
		w.startPausedAt(13, node.Attach(), env, func(r *startedProgram) {
			Expect(w.calls()[12]).To(HavePrefix("mkfs"))
			r.kill()
		})
		disk := filepath.Join(w.state, "disks/8:16")
		file, err := os.OpenFile(disk, os.O_WRONLY, 0)
		Expect(err).NotTo(HaveOccurred())
		_, err = file.WriteString(remains)
		Expect(err).NotTo(HaveOccurred())
		Expect(file.Close()).To(Succeed())
		// Another VM, on another node, has nothing of it but the disk.
		w.remove("devices")
		w.mkdir("devices")
	}

	DescribeTable("begins a mkfs again that was cut short for another VM, whatever that has left", func(remains string) {
		interruptMkfs(attachment, remains)
		w.startAttachment(append(slices.Clip(attachment), "VM=bosh/agent-b"))
		Expect(w.readFilesystem("8:16")).To(Equal("ext4 - 8388608"))
	},
		Entry("in the first MiB", strings.Repeat("half of a filesystem", mib/20+1)),
		Entry("or as a whole filesystem", "ext4 of-the-first-try 8388608\n"),
	)

	It("takes its mark from a disk with a finished filesystem", func() {
		w.addDevice("dev/volume", 8, 16, 8*mib, "")
		w.startAttachment(attachment).kill()
		Expect(w.readState("disks/8:16")).NotTo(ContainSubstring("\x00bosh-kubernetes-cpi"))
	})

	It("does not take another disk's mark for its own", func() {
		interruptMkfs(append(slices.Clip(attachment), "DISK=disk-2"), "half of a filesystem")
		status, output := w.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("its volume holds data without a filesystem that is known here; it is left untouched"))
	})

	It("does not go by a mark once the disk has had its filesystem: what is there is a job's", func() {
		interruptMkfs(attachment, "ext4 mine 8388608\n")
		w.startAttachment(attachmentFormatted)
		Expect(w.readFilesystem("8:16")).To(Equal("ext4 mine 8388608"))
	})

	It("fails for a device that is smaller than BOSH was told", func() {
		w.addDevice("dev/volume", 8, 16, 7*mib, "ext4 - 7340032\n")
		status, output := w.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("disk disk-1: it has to have 8 MiB, and the device of its volume has 7"))
		Expect(w.exists("devices/disk-1")).To(BeFalse())
	})

	It("tells a device that cannot be read from one with unknown content", func() {
		w.addDevice("dev/volume", 8, 16, 8*mib, "someone's database")
		w.setState("exit/cmp", "2")
		status, output := w.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("disk disk-1: its volume cannot be read"))
	})

	It("checks, and then grows, the filesystem of a disk that has grown", func() {
		w.addDevice("dev/volume", 8, 16, 9*mib, "ext4 - 8388608\n")
		w.startAttachment(attachment)
		Expect(w.calls()[8:]).To(Equal([]string{
			readType + "/dev/volume",
			"dumpe2fs -h /dev/volume",
			"blockdev --getsize64 /dev/volume",
			"e2fsck -f -p /dev/volume",
			"resize2fs /dev/volume",
			makeNode + "8 16",
		}))
		Expect(w.readFilesystem("8:16")).To(Equal("ext4 - 9437184"))
	})

	It("grows one that e2fsck had to repair", func() {
		w.addDevice("dev/volume", 8, 16, 9*mib, "ext4 - 8388608\n")
		w.setState("exit/e2fsck", "1") // e2fsck(8): errors corrected
		w.startAttachment(attachment)
		Expect(w.readFilesystem("8:16")).To(Equal("ext4 - 9437184"))
	})

	It("fails for one that e2fsck does not repair", func() {
		w.addDevice("dev/volume", 8, 16, 9*mib, "ext4 - 8388608\n")
		w.setState("exit/e2fsck", "4")
		status, output := w.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("its filesystem has errors that e2fsck does not repair by itself"))
		Expect(w.calls()).NotTo(ContainElement(HavePrefix("resize2fs")))
		Expect(w.exists("devices/disk-1")).To(BeFalse())
	})

	It("does not grow by less than 1 MiB", func() {
		w.addDevice("dev/volume", 8, 16, 9*mib-1, "ext4 - 8388608\n")
		w.startAttachment(attachment)
		Expect(w.readFilesystem("8:16")).To(Equal("ext4 - 8388608"))
	})

	It("grows XFS where it is mounted", func() {
		w.addDevice("dev/volume", 8, 16, 9*mib, "xfs 1 8388608\n")
		w.startAttachment(attachmentXFS)
		Expect(w.calls()[8:]).To(Equal([]string{
			"exclusively /dev/volume",
			readType + "/dev/volume",
			"xfs_db -r -c sb 0 -c print dblocks blocksize /dev/volume",
			"blockdev --getsize64 /dev/volume",
			"mount -o nouuid /dev/volume /mnt/grow",
			"xfs_growfs /mnt/grow",
			"umount /mnt/grow",
			makeNode + "8 16",
		}))
		Expect(w.readFilesystem("8:16")).To(Equal("xfs 1 9437184"))
	})

	It("gives XFS that came with a snapshot an UUID of its own, once its journal is played back", func() {
		w.addDevice("dev/volume", 8, 16, 8*mib, "xfs of-the-source 8388608\n")
		w.startAttachment(attachmentXFS)
		Expect(w.calls()[6:12]).To(Equal([]string{
			readType + "/dev/volume",
			readUUID + "/dev/volume",
			"exclusively /dev/volume",
			"mount -o nouuid /dev/volume /mnt/play-back",
			"umount /mnt/play-back",
			"xfs_admin -U 1 /dev/volume",
		}))
		Expect(w.readFilesystem("8:16")).To(Equal("xfs 1 8388608"))
	})

	It("says which program failed, and ends with 1", func() {
		w.addDevice("dev/volume", 8, 16, 8*mib, "")
		w.setState("exit/mkfs.ext4", "5")
		status, output := w.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(MatchRegexp(`disk disk-1: status 5 of mkfs\.ext4`))
	})
})

var _ = Describe("An attachment of a Filesystem claim", func() {
	var w fakeRoot
	BeforeEach(func() {
		w = newFakeRoot()
		w.write("dev/loop-control", "c 10 237\n")
	})

	// image makes a disk's image file that begins with this.
	writeImage := func(bytes int64, content string) {
		GinkgoHelper()
		w.write("volume/disk.img", content)
		Expect(os.Truncate(w.path("volume/disk.img"), bytes)).To(Succeed())
	}

	It("makes an image whose filesystem is whole, and written out, before it has its name", func() {
		w.write("volume/disk.img.new", "left by one that was cut short")
		w.startAttachment(attachment)
		Expect(w.calls()).To(Equal([]string{
			readFreeSpace,
			makeExt4 + "/volume/disk.img.new",
			"sync /volume/disk.img.new",
			"sync /volume",
			listLoops,
			"losetup --find",
			"mknod /dev/loop0 b 7 0",
			"losetup /dev/loop0 /volume/disk.img",
			"losetup --direct-io=on /dev/loop0",
			"exclusively /dev/loop0",
			readType + "/dev/loop0",
			"exclusively /dev/loop0",
			"losetup --set-capacity /dev/loop0",
			readType + "/dev/loop0",
			"dumpe2fs -h /dev/loop0",
			"blockdev --getsize64 /dev/loop0",
			makeNode + "7 0",
		}))
		Expect(firstLine(w.path("volume/disk.img"))).To(Equal("ext4 - 8388608"))
		Expect(w.exists("volume/disk.img.new")).To(BeFalse())
	})

	It("does not make an image for a disk that had one once", func() {
		status, output := w.run(node.Attach(), attachmentFormatted...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("it had a filesystem once, and its volume is blank"))
		Expect(w.exists("volume/disk.img")).To(BeFalse())
	})

	It("fails before it makes an image that could outgrow its volume", func() {
		w.setState("room", "7")
		status, output := w.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("disk disk-1: the volume has room for 7 MiB, the disk needs 8"))
		Expect(w.exists("volume/disk.img")).To(BeFalse())
		Expect(w.exists("volume/disk.img.new")).To(BeFalse())
	})

	It("grows the image, the loop device and the filesystem, in this order", func() {
		writeImage(6*mib, "ext4 - 6291456\n")
		w.startAttachment(attachment)
		Expect(w.calls()[0]).To(Equal(readFreeSpace))
		Expect(w.calls()).To(ContainElements("losetup --set-capacity /dev/loop0", "e2fsck -f -p /dev/loop0", "resize2fs /dev/loop0"))
		Expect(firstLine(w.path("volume/disk.img"))).To(Equal("ext4 - 8388608"))
	})

	It("counts what the image has of the volume already as room for it", func() {
		writeImage(6*mib, "ext4 - 6291456\n")
		Expect(os.WriteFile(w.path("volume/disk.img"), append([]byte("ext4 - 6291456\n"), make([]byte, 6*mib)...), 0o600)).To(Succeed())
		w.setState("room", "2")
		w.startAttachment(attachment)
	})

	It("fails for an image that would have to grow over the volume's end", func() {
		writeImage(6*mib, "ext4 - 6291456\n")
		w.setState("room", "7")
		status, _ := w.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(firstLine(w.path("volume/disk.img"))).To(Equal("ext4 - 6291456"))
		Expect(w.loops()).To(BeEmpty())
	})

	Describe("that is reserved", func() {
		reserved := append(slices.Clip(attachment), "RESERVE=true")
		const reserve = "fallocate --length 8388608 /volume/disk.img"

		It("has all of its room before it is a device, the filesystem's own discards taken back", func() {
			w.startAttachment(reserved)
			calls := w.calls()
			Expect(calls).To(ContainElement(reserve))
			Expect(slices.Index(calls, makeExt4+"/volume/disk.img.new")).To(BeNumerically("<", slices.Index(calls, reserve)))
			Expect(slices.Index(calls, reserve)).To(BeNumerically("<", slices.Index(calls, "losetup --find")))
		})

		It("gets what it lacks at each attachment, as by its growth", func() {
			writeImage(6*mib, "ext4 - 6291456\n")
			w.startAttachment(reserved)
			Expect(w.calls()).To(ContainElement(reserve))
			Expect(firstLine(w.path("volume/disk.img"))).To(Equal("ext4 - 8388608"))
		})

		It("takes nothing where there is too little for it", func() {
			writeImage(8*mib, "ext4 - 8388608\n")
			w.setState("room", "7")
			status, output := w.run(node.Attach(), reserved...)
			Expect(status).To(Equal(1))
			Expect(output).To(ContainSubstring("the volume has room for 7 MiB, the disk needs 8"))
			Expect(w.calls()).NotTo(ContainElement(reserve))
		})

		It("is not attached where its room cannot be reserved, with the reason", func() {
			w.setState("exit/fallocate", "1")
			status, output := w.run(node.Attach(), reserved...)
			Expect(status).To(Equal(1))
			Expect(output).To(ContainSubstring("disk disk-1: the volume does not reserve its room, as cloud_properties.reserve asks for: fallocate: as the test wants it"))
			Expect(w.loops()).To(BeEmpty())
			Expect(w.exists("devices/disk-1")).To(BeFalse())
		})
	})

	It("leaves an image that is larger than asked for", func() {
		writeImage(9*mib, "ext4 - 9437184\n")
		w.startAttachment(attachment)
		Expect(w.calls()).NotTo(ContainElement(readFreeSpace))
		Expect(firstLine(w.path("volume/disk.img"))).To(Equal("ext4 - 9437184"))
	})

	It("adopts the loop device that a killed one has left", func() {
		killed := w.startAttachment(attachment)
		killed.kill()
		Expect(w.loops()).To(HaveLen(1))
		callsBefore := len(w.calls())
		w.startAttachment(attachment)
		Expect(w.calls()[callsBefore:]).To(ContainElement(listLoops))
		Expect(w.calls()[callsBefore:]).NotTo(ContainElement(HavePrefix("losetup --find")))
		Expect(w.loops()).To(HaveLen(1))
	})

	It("takes the next loop device when another attachment takes the free one first", func() {
		w.setState("race", "")
		w.startAttachment(attachment)
		Expect(w.calls()).To(ContainElement("losetup /dev/loop1 /volume/disk.img"))
		Expect(w.read("devices/disk-1")).To(Equal("b 7 1\n"))
	})

	It("makes the node of the loop driver's control where the container has none", func() {
		Expect(os.Remove(w.path("dev/loop-control"))).To(Succeed())
		w.startAttachment(attachment)
		Expect(w.read("dev/loop-control")).To(Equal("c 10 237\n"))
	})

	It("frees the loop device when something fails", func() {
		writeImage(6*mib, "ext4 - 6291456\n")
		w.setState("exit/resize2fs", "3")
		status, output := w.run(node.Attach(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("disk disk-1: status 3 of resize2fs"))
		Expect(w.loops()).To(BeEmpty())
	})
})
