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

	"bosh-kubernetes-cpi/kube/manifest/node"
)

var _ = Describe("A copy of a disk", func() {
	var w fakeRoot
	BeforeEach(func() {
		w = newFakeRoot()
		w.write("dev/loop-control", "c 10 237\n")
	})

	const cp = "cp --recursive --no-dereference --preserve=mode,ownership,timestamps,links,xattr --sparse=auto /mnt/old/. /mnt/new/."
	env := []string{"DISK=disk-2", "SIZE_MIB=8", "FILESYSTEM=ext4", "ATTACH=", "OLD=disk-1", "OLD_ATTACH=", "VM="}
	bind := append(slices.Clip(env), "ATTACH=bind", "OLD_ATTACH=bind")

	// fill makes files of several kinds.
	fill := func(folder string) {
		GinkgoHelper()
		Expect(os.MkdirAll(filepath.Join(folder, "below"), 0o750)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(folder, "below/data"), []byte("data"), 0o640)).To(Succeed())
		Expect(os.Link(filepath.Join(folder, "below/data"), filepath.Join(folder, "again"))).To(Succeed())
		Expect(os.Symlink("below/data", filepath.Join(folder, "link"))).To(Succeed())
		Expect(os.Chtimes(filepath.Join(folder, "below/data"), time.Time{}, time.Unix(1e9, 0))).To(Succeed())
	}
	// isCopied fails unless the folder has what fill makes, with all attributes.
	expectCopied := func(folder string) {
		GinkgoHelper()
		expected := GinkgoT().TempDir()
		fill(expected)
		Expect(listFiles(folder)).To(Equal(listFiles(expected)))
		Expect(os.ReadFile(filepath.Join(folder, "below/data"))).To(Equal([]byte("data")))
	}
	// onBlock has both disks on Block claims, and returns the folder of the old one's files.
	setUpBlock := func(old string) string {
		GinkgoHelper()
		w.addDevice("dev/old", 8, 32, mib, old)
		w.addDevice("dev/volume", 8, 48, 8*mib, "")
		return w.filesOf(w.state + "/disks/8:32")
	}

	It("has all that the disk has, and is compared as it is on the new one", func() {
		fill(setUpBlock("ext4 - 1048576\n"))
		Expect(w.run(node.Copy(), env...)).To(BeZero())
		marks := readMarks(8)
		Expect(w.calls()).To(Equal([]string{
			"blkid -p /dev/old",
			"exclusively /dev/old",
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
		expectCopied(w.filesOf(w.state + "/disks/8:48"))
		expectCopied(w.filesOf(w.state + "/disks/8:32"))
	})

	It("is not made of a disk that had a filesystem once, and has none", func() {
		fill(setUpBlock(""))
		status, output := w.run(node.Copy(), append(slices.Clip(env), "OLD_FORMATTED=true")...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("it had a filesystem once, and its volume is blank; nothing was copied"))
	})

	It("is made anew when an earlier try has left something", func() {
		fill(setUpBlock("ext4 - 1048576\n"))
		w.setState("disks/8:48", "ext4 - 8388608\n")
		Expect(os.Truncate(filepath.Join(w.state, "disks/8:48"), 8*mib)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(w.filesOf(w.state+"/disks/8:48"), "left"), nil, 0o600)).To(Succeed())
		Expect(w.run(node.Copy(), env...)).To(BeZero())
		expectCopied(w.filesOf(w.state + "/disks/8:48"))
	})

	It("goes from image to image, whose loop devices go with their mounts", func() {
		w.write("old/disk.img", "ext4 - 1048576\n")
		fill(w.filesOf(w.path("old/disk.img")))
		Expect(w.run(node.Copy(), env...)).To(BeZero())
		Expect(w.calls()).To(Equal([]string{
			listLoops, "losetup --find", "mknod /dev/loop0 b 7 0", "losetup /dev/loop0 /old/disk.img", "losetup --direct-io=on /dev/loop0",
			"exclusively /dev/loop0",
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
		Expect(w.loops()).To(BeEmpty())
		expectCopied(w.filesOf(w.path("volume/disk.img")))
	})

	It("takes away the image, and its loop device, of a try that was killed", func() {
		fill(setUpBlock("ext4 - 1048576\n"))
		Expect(os.Remove(w.path("dev/volume"))).To(Succeed())
		w.write("volume/disk.img", "ext4 - 8388608\n")
		status, output := w.callFunction("device loop pause", `make_loop "$root/volume/disk.img"`, "DISK=disk-2")
		Expect(status).To(BeZero(), output)
		Expect(w.run(node.Copy(), env...)).To(BeZero())
		Expect(w.loops()).To(BeEmpty())
		expectCopied(w.filesOf(w.path("volume/disk.img")))
	})

	It("goes from directory to directory", func() {
		fill(w.path("old"))
		w.write("volume/left", "")
		Expect(w.run(node.Copy(), bind...)).To(BeZero())
		Expect(w.calls()).To(Equal([]string{
			"mount --bind -o ro /old /mnt/old",
			"mount --bind /volume /mnt/new",
			cp,
			"sync --file-system /mnt/new",
			"umount /mnt/new",
			"mount --bind -o ro /volume /mnt/new",
			"umount /mnt/new /mnt/old",
		}))
		expectCopied(w.path("volume"))
	})

	DescribeTable("of a disk that has never been attached is nothing", func(old func()) {
		w.addDevice("dev/volume", 8, 48, 8*mib, "")
		old()
		Expect(w.run(node.Copy(), env...)).To(BeZero())
		Expect(w.calls()).NotTo(ContainElement(ContainSubstring("mkfs")))
	},
		Entry("on a Block claim", func() { w.addDevice("dev/old", 8, 32, mib, "") }),
		Entry("on a Block claim, cut short", func() {
			w.addDevice("dev/old", 8, 32, mib, "half of a filesystem")
			status, output := w.callFunction("filesystem volume", `
				mark disk-1 | dd of="$root/dev/old" bs=512 seek=2047 count=1 conv=sync,notrunc status=none`, "DISK=disk-2")
			Expect(status).To(BeZero(), output)
		}),
		Entry("on a Filesystem claim", func() { w.mkdir("old/lost+found") }),
		Entry("on a Filesystem claim, cut short", func() { w.write("old/disk.img.new", "half") }),
	)

	DescribeTable("is not begun", func(old func(), words string) {
		w.addDevice("dev/volume", 8, 48, 8*mib, "")
		old()
		status, output := w.run(node.Copy(), env...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring(words))
		Expect(w.readFilesystem("8:48")).To(BeEmpty())
	},
		Entry("of content that is not known", func() { w.addDevice("dev/old", 8, 32, mib, "someone's database") },
			"disk disk-1: its volume holds data without a filesystem that is known here; nothing was copied"),
		Entry("of files that are no disk's image", func() { w.write("old/file", "") },
			"disk disk-1: its volume holds files, and not a disk's image; nothing was copied"),
		Entry("of a disk in use", func() {
			w.addDevice("dev/old", 8, 32, mib, "ext4 - 1048576\n")
			w.setState("busy/8:32", "")
			w.addProcess(300, 1, "postgres", inVMB, "92 1 8:32 / /var/vcap/store rw")
		}, "disk disk-1 is in use: process 300 (postgres) has it mounted at /var/vcap/store"),
	)

	It("fails when it is not the same", func() {
		fill(setUpBlock("ext4 - 1048576\n"))
		w.setState("spoil", "mnt/new/below/data")
		status, output := w.run(node.Copy(), env...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("the copy of disk disk-1 is not the same as the disk"))
	})

	DescribeTable("fails with a status of its own when the data does not fit", func(free, failing string) {
		fill(setUpBlock("ext4 - 1048576\n"))
		w.setState("free", free)
		if failing != "" {
			w.setState("exit/"+failing, "1")
		}
		status, output := w.run(node.Copy(), env...)
		Expect(status).To(Equal(node.ExitNoSpace))
		Expect(output).To(ContainSubstring("the data of disk disk-1 does not fit on a disk of 8 MiB\n"))
	},
		Entry("before it is begun", "1 * 512", ""),
		Entry("when the disk is full in the middle", "16 * 65536", "cp"),
	)

	It("fails otherwise when it is cut short for another reason", func() {
		fill(setUpBlock("ext4 - 1048576\n"))
		w.setState("free", "1000 * 65536")
		w.setState("exit/cp", "1")
		status, output := w.run(node.Copy(), env...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("disk disk-1 could not be copied"))
	})
})

// listFiles is what a folder holds, with all attributes.
func listFiles(folder string) string {
	GinkgoHelper()
	list := exec.Command("find", ".", "-mindepth", "1", "-name", "lost+found", "-o", "-mindepth", "1", "-printf", `%p %y %m %n %U:%G %l %TY-%Tm\n`)
	list.Dir = folder
	out, err := list.Output()
	Expect(err).NotTo(HaveOccurred())
	lines := strings.Split(string(out), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
