//go:build linux

package volume_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/cpi/node/volume"
	"bosh-kubernetes-cpi/test/harness/filesystems"
)

// markText is part of the contract between versions: see package api.
const markText = "bosh-kubernetes-cpi makes the filesystem of disk disk-" + uuid + "\n"

var _ = Describe("The decision to format", func() {
	// newFile returns a file that stands for the device of a disk.
	newFile := func() system.System {
		GinkgoHelper()
		sys := newRoot()
		writeFile(sys, "disk", "")
		Expect(os.Truncate(sys.Path("disk"), 16*mib)).To(Succeed())
		return sys
	}
	formats := func(sys system.System, disk api.Disk) (bool, error) {
		return volume.Formats(context.Background(), sys, disk, "/disk")
	}

	blank := func(system.System) {}
	data := func(sys system.System) { writeAt(sys, "disk", 0, "data of a job") }
	marked := func(offset int64) func(sys system.System) {
		return func(sys system.System) {
			data(sys)
			writeAt(sys, "disk", offset, markText)
		}
	}
	filesystemAnd := func(change func(sys system.System)) func(sys system.System) {
		return func(sys system.System) {
			mkfs(sys, "disk", "ext4", otherUUID)
			change(sys)
		}
	}
	const endMark = 16*mib - 512

	DescribeTable("is", func(fill func(sys system.System), blank bool, had bool) {
		sys := newFile()
		fill(sys)
		Expect(formats(sys, ext4Disk)).To(Equal(blank))
		Expect(formats(sys, formatted(ext4Disk))).To(Equal(had))
	},
		Entry("no for a filesystem", filesystemAnd(blank), false, false),
		Entry("yes for data with the first mark, if no VM had the disk", marked(mib-512), true, false),
		Entry("yes for data with the second mark, if no VM had the disk", marked(endMark), true, false),
		Entry("yes for a filesystem with a mark, if no VM had the disk",
			filesystemAnd(func(sys system.System) { writeAt(sys, "disk", endMark, markText) }), true, false),
	)

	It("is yes for a blank disk that no VM had", func() {
		Expect(formats(newFile(), ext4Disk)).To(BeTrue())
	})

	It("is an error for a blank disk that a VM had", func() {
		_, err := formats(newFile(), formatted(ext4Disk))
		expectCode(err, "volume-blank", "the volume of disk disk-"+uuid+" is blank, but the disk had a filesystem: this may be another volume, "+
			"because the node was rebuilt or the export changed; restore the volume with the data, or remove the annotation "+
			"bosh.cloudfoundry.org/formatted of its PVC to use the disk empty")
	})

	It("is an error for a blank disk that this attachment published before", func() {
		sys := newFile()
		writeFile(sys, marker, "")
		_, err := formats(sys, ext4Disk)
		expectCode(err, "volume-blank", "is blank, but the disk had a filesystem")
	})

	It("is an error for unknown data on a disk that no VM had", func() {
		sys := newFile()
		data(sys)
		_, err := formats(sys, ext4Disk)
		expectCode(err, "volume-not-blank", "the volume of disk disk-"+uuid+" has data without a known filesystem; nothing was changed")
	})

	It("is negative for unknown data on a disk that a VM had, because a job may have written it", func() {
		sys := newFile()
		data(sys)
		Expect(formats(sys, formatted(ext4Disk))).To(BeFalse())
		writeFile(sys, marker, "")
		Expect(formats(sys, ext4Disk)).To(BeFalse())
	})

	It("does not believe the mark of another disk", func() {
		sys := newFile()
		other := ext4Disk
		other.CID = "disk-2"
		Expect(volume.WriteMarks(sys, other, "/disk")).To(Succeed())
		data(sys)
		_, err := formats(sys, ext4Disk)
		expectCode(err, "volume-not-blank", "has data without a known filesystem")
	})

	It("writes the marks that all versions read", func() {
		sys := newFile()
		Expect(volume.WriteMarks(sys, ext4Disk, "/disk")).To(Succeed())
		for _, sector := range []int{2047, 16*2048 - 1} {
			out, err := exec.Command("dd", "if="+sys.Path("disk"), "bs=512", fmt.Sprintf("skip=%d", sector), "count=1", "status=none").Output()
			Expect(err).NotTo(HaveOccurred())
			Expect(string(out[:len(markText)])).To(Equal(markText))
			Expect(string(out[len(markText):])).To(Equal(string(make([]byte, 512-len(markText)))))
		}
	})

	It("is an error if blkid is killed", func() {
		filesystems.FakeProgram("blkid", "kill -9 $$")
		_, err := formats(newFile(), ext4Disk)
		Expect(err).To(MatchError("run blkid: signal: killed"))
	})

	It("is an error with a code if the device cannot be read", func() {
		sys := newFile()
		sys.Before = func(call, path string) error {
			if call == "read" && path == "/disk" {
				return unix.EIO
			}
			return nil
		}
		_, err := formats(sys, ext4Disk)
		expectCode(err, "volume-unreadable", "cannot read the volume of disk disk-"+uuid+": read /disk: input/output error")
	})

	DescribeTable("is the same or an error if a call fails", func(fill func(sys system.System), disk api.Disk, expected bool, expectedCode string) {
		sys := newFile()
		fill(sys)
		calls := countCalls(sys, func(sys system.System) {
			formats, err := formats(sys, disk)
			Expect(formats).To(Equal(expected))
			Expect(err != nil).To(Equal(expectedCode != ""))
		})
		for n := range calls {
			for _, errno := range []unix.Errno{unix.EIO, unix.ENOMEM, unix.EINTR} {
				formats, err := formats(failCall(sys, n+1, errno), disk)
				switch {
				case err == nil, errno == unix.EINTR:
					Expect(formats).To(Equal(expected), "call %d: %s", n+1, errno)
					Expect(err != nil).To(Equal(expectedCode != ""), "call %d: %s", n+1, errno)
				default:
					Expect(formats).To(BeFalse())
					Expect(api.ResultOf(err, "").Code).NotTo(HavePrefix("volume-blank"))
				}
			}
		}
	},
		Entry("blank", blank, ext4Disk, true, ""),
		Entry("marked", marked(endMark), ext4Disk, true, ""),
		Entry("data", data, ext4Disk, false, "volume-not-blank"),
		Entry("data of a VM", data, formatted(ext4Disk), false, ""),
		Entry("data of a VM with a mark", marked(mib-512), formatted(ext4Disk), false, ""),
		Entry("a filesystem", filesystemAnd(blank), ext4Disk, false, ""),
	)
})
