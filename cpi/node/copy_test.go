package node_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node"
)

var _ = Describe("copy.sh", func() {
	var root fakeRoot
	BeforeEach(func() {
		root = newFakeRoot()
		root.write("dev/loop-control", "c 10 237\n")
	})

	const cp = "cp --recursive --no-dereference --preserve=mode,ownership,timestamps,links,xattr --sparse=auto /mnt/old/. /mnt/new/."
	env := []string{"DISK=disk-2", "SIZE_MIB=8", "FILESYSTEM=ext4", "ATTACH=", "OLD=disk-1", "OLD_ATTACH=", "VM="}
	bind := append(slices.Clip(env), "ATTACH=bind", "OLD_ATTACH=bind")

	// createFiles creates files of several kinds.
	createFiles := func(directory string) {
		GinkgoHelper()
		Expect(os.MkdirAll(filepath.Join(directory, "sub"), 0o750)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(directory, "sub/data"), []byte("data"), 0o640)).To(Succeed())
		Expect(os.Link(filepath.Join(directory, "sub/data"), filepath.Join(directory, "hard-link"))).To(Succeed())
		Expect(os.Symlink("sub/data", filepath.Join(directory, "link"))).To(Succeed())
		Expect(os.Chtimes(filepath.Join(directory, "sub/data"), time.Time{}, time.Unix(1e9, 0))).To(Succeed())
	}
	// expectCopied expects the directory to contain the files of createFiles, with all attributes.
	expectCopied := func(directory string) {
		GinkgoHelper()
		expected := GinkgoT().TempDir()
		createFiles(expected)
		Expect(listFiles(directory)).To(Equal(listFiles(expected)))
		Expect(os.ReadFile(filepath.Join(directory, "sub/data"))).To(Equal([]byte("data")))
	}
	// setUpBlock creates Block volumes for both disks, and returns the directory with the files of the old disk.
	setUpBlock := func(old string) string {
		GinkgoHelper()
		root.addDevice("dev/old", 8, 32, mib, old)
		root.addDevice("dev/volume", 8, 48, 8*mib, "")
		return root.filesOf(root.state + "/disks/8:32")
	}

	It("copies all files and attributes, and verifies them on the successor", func() {
		createFiles(setUpBlock("ext4 - 1048576\n"))
		Expect(root.run(node.Copy(), env...)).To(BeZero())
		marks := readMarks(8)
		Expect(root.calls()).To(Equal([]string{
			"blkid -p /dev/old",
			"open exclusively /dev/old",
			"blkdiscard /dev/volume",
			makeExt4 + "/dev/volume",
			"mount -o ro /dev/old /mnt/old",
			readSize,
			marks[0], marks[1], marks[2], "blkid -p /dev/volume",
			"mount /dev/volume /mnt/new",
			cp,
			"sync --file-system /mnt/new",
			"umount /mnt/new",
			readSize,
			marks[0], marks[1], marks[2], "blkid -p /dev/volume",
			"mount -o ro /dev/volume /mnt/new",
			"umount /mnt/new /mnt/old",
		}))
		expectCopied(root.filesOf(root.state + "/disks/8:48"))
		expectCopied(root.filesOf(root.state + "/disks/8:32"))
	})

	It("fails for a blank disk that had a filesystem", func() {
		createFiles(setUpBlock(""))
		status, output := root.run(node.Copy(), append(slices.Clip(env), "OLD_FORMATTED=true")...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring(
			"the volume of disk disk-1 is blank, but the disk had a filesystem; nothing was copied [volume-blank]"))
	})

	It("starts over after an interrupted attempt", func() {
		createFiles(setUpBlock("ext4 - 1048576\n"))
		root.setState("disks/8:48", "ext4 - 8388608\n")
		Expect(os.Truncate(filepath.Join(root.state, "disks/8:48"), 8*mib)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(root.filesOf(root.state+"/disks/8:48"), "of-an-earlier-attempt"), nil, 0o600)).To(Succeed())
		Expect(root.run(node.Copy(), env...)).To(BeZero())
		expectCopied(root.filesOf(root.state + "/disks/8:48"))
	})

	It("copies from image file to image file, and frees the loop devices with the mounts", func() {
		root.write("old/disk.img", "ext4 - 1048576\n")
		createFiles(root.filesOf(root.path("old/disk.img")))
		Expect(root.run(node.Copy(), env...)).To(BeZero())
		Expect(root.calls()).To(Equal([]string{
			listLoops, "losetup --find", "mknod /dev/loop0 b 7 0", "losetup /dev/loop0 /old/disk.img", "losetup --direct-io=on /dev/loop0",
			"open exclusively /dev/loop0",
			readFreeSpace, makeExt4 + "/volume/disk.img.new", "sync /volume/disk.img.new", "sync /volume",
			"mount -o ro /dev/loop0 /mnt/old",
			"losetup --detach /dev/loop0",
			listLoops, "losetup --find", "mknod /dev/loop1 b 7 1", "losetup /dev/loop1 /volume/disk.img", "losetup --direct-io=on /dev/loop1",
			"mount /dev/loop1 /mnt/new",
			"losetup --detach /dev/loop1",
			cp,
			"sync --file-system /mnt/new",
			"umount /mnt/new",
			listLoops, "losetup --find", "losetup /dev/loop1 /volume/disk.img", "losetup --direct-io=on /dev/loop1",
			"mount -o ro /dev/loop1 /mnt/new",
			"losetup --detach /dev/loop1",
			"umount /mnt/new /mnt/old",
		}))
		Expect(root.loops()).To(BeEmpty())
		expectCopied(root.filesOf(root.path("volume/disk.img")))
	})

	It("removes the image file and frees the loop device of a killed attempt", func() {
		createFiles(setUpBlock("ext4 - 1048576\n"))
		Expect(os.Remove(root.path("dev/volume"))).To(Succeed())
		root.write("volume/disk.img", "ext4 - 8388608\n")
		status, output := root.callFunction("device loop pause", `create_loop "$root/volume/disk.img"`, "DISK=disk-2")
		Expect(status).To(BeZero(), output)
		Expect(root.run(node.Copy(), env...)).To(BeZero())
		Expect(root.loops()).To(BeEmpty())
		expectCopied(root.filesOf(root.path("volume/disk.img")))
	})

	It("copies from directory to directory", func() {
		createFiles(root.path("old"))
		root.write("volume/of-an-earlier-attempt", "")
		Expect(root.run(node.Copy(), bind...)).To(BeZero())
		Expect(root.calls()).To(Equal([]string{
			"mount --bind -o ro /old /mnt/old",
			"mount --bind /volume /mnt/new",
			cp,
			"sync --file-system /mnt/new",
			"umount /mnt/new",
			"mount --bind -o ro /volume /mnt/new",
			"umount /mnt/new /mnt/old",
		}))
		expectCopied(root.path("volume"))
	})

	DescribeTable("does nothing for a disk that was never attached", func(createOld func()) {
		root.addDevice("dev/volume", 8, 48, 8*mib, "")
		createOld()
		Expect(root.run(node.Copy(), env...)).To(BeZero())
		Expect(root.calls()).NotTo(ContainElement(ContainSubstring("mkfs")))
	},
		Entry("on a Block volume", func() { root.addDevice("dev/old", 8, 32, mib, "") }),
		Entry("on a Block volume, with an interrupted mkfs", func() {
			root.addDevice("dev/old", 8, 32, mib, "partial filesystem")
			status, output := root.callFunction("filesystem volume", `
				formatting_mark disk-1 | dd of="$root/dev/old" bs=512 seek=2047 count=1 conv=sync,notrunc status=none`, "DISK=disk-2")
			Expect(status).To(BeZero(), output)
		}),
		Entry("on a Filesystem volume", func() { root.mkdir("old/lost+found") }),
		Entry("on a Filesystem volume, with an interrupted mkfs", func() { root.write("old/disk.img.new", "partial") }),
	)

	It("does not consider the disk empty if it cannot look at its files, for example without memory", func() {
		root.write("old/file", "")
		root.addProgram("find", "exit 137\n")
		status, _ := root.run(node.Copy(), env...)
		Expect(status).To(Equal(137))
	})

	DescribeTable("fails without changes to the successor", func(createOld func(), message string) {
		root.addDevice("dev/volume", 8, 48, 8*mib, "")
		createOld()
		status, output := root.run(node.Copy(), env...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring(message))
		Expect(root.readFilesystem("8:48")).To(BeEmpty())
	},
		Entry("if the disk has unknown content", func() { root.addDevice("dev/old", 8, 32, mib, "someone's database") },
			"the volume of disk disk-1 has data without a known filesystem; nothing was copied [volume-not-blank]"),
		Entry("if the volume has files without an image file", func() { root.write("old/file", "") },
			"the volume of disk disk-1 has files, but not the disk's image file; nothing was copied [volume-not-blank]"),
		Entry("if the disk is in use", func() {
			root.addDevice("dev/old", 8, 32, mib, "ext4 - 1048576\n")
			root.setState("busy/8:32", "")
			root.addProcess(300, 1, "postgres", inVMB, "92 1 8:32 / /var/vcap/store rw")
		}, "disk disk-1 is in use: process 300 (postgres) has it mounted at /var/vcap/store [disk-in-use]"),
	)

	It("fails if the copy differs from the disk", func() {
		createFiles(setUpBlock("ext4 - 1048576\n"))
		root.setState("corrupt", "mnt/new/sub/data")
		status, output := root.run(node.Copy(), env...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("the copy of disk disk-1 differs from the disk: "))
	})

	DescribeTable("exits with ExitNoSpace if the data does not fit", func(free, failing string) {
		createFiles(setUpBlock("ext4 - 1048576\n"))
		root.setState("filesystem-free", free)
		if failing != "" {
			root.setState("exit/"+failing, "1")
		}
		status, output := root.run(node.Copy(), env...)
		Expect(status).To(Equal(node.ExitNoSpace))
		Expect(output).To(ContainSubstring("the data of disk disk-1 does not fit on a disk of 8 MiB [disk-copy-full]\n"))
	},
		Entry("according to a check before the copy", "1 * 512", ""),
		Entry("because the successor becomes full", "16 * 65536", "cp"),
	)

	It("exits with status 1 if copying fails for another reason", func() {
		createFiles(setUpBlock("ext4 - 1048576\n"))
		root.setState("filesystem-free", "1000 * 65536")
		root.setState("exit/cp", "1")
		status, output := root.run(node.Copy(), env...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("cannot copy the files of disk disk-1 [disk-copy-failed]"))
	})
})

// listFiles lists the files of a directory, with all attributes.
func listFiles(directory string) string {
	GinkgoHelper()
	list := exec.Command("find", ".", "-mindepth", "1", "-name", "lost+found", "-o",
		"-mindepth", "1", "-printf", `%p %y %m %n %U:%G %l %TY-%Tm\n`)
	list.Dir = directory
	out, err := list.Output()
	Expect(err).NotTo(HaveOccurred())
	lines := strings.Split(string(out), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
