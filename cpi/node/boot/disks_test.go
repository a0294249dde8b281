//go:build linux

package boot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/lock"
	"bosh-kubernetes-cpi/cpi/node/system"
)

const (
	disk1 = "disk-11111111-1111-4111-8111-111111111111"
	disk2 = "disk-22222222-2222-4222-8222-222222222222"
)

// ext4Of returns the start of an ext4 filesystem with the UUID of a disk.
func ext4Of(cid string) string {
	superblock := make([]byte, 4096)
	superblock[1024+0x4], superblock[1024+0x60] = 1, 0x40 // one block, and extents
	superblock[1024+0x38], superblock[1024+0x39] = 0x53, 0xef
	copy(superblock[1024+0x68:], uuidBytes(cid))
	return string(superblock)
}

// xfsOf returns the start of an XFS filesystem with the UUID of a disk.
func xfsOf(cid string) string {
	superblock := make([]byte, 4096)
	copy(superblock, "XFSB\x00\x00\x10\x00") // blocks of 4 KiB
	superblock[15] = 1                       // one block
	copy(superblock[32:], uuidBytes(cid))
	superblock[102] = 2 // sectors of 512 bytes
	return string(superblock)
}

// uuidBytes returns the bytes of the UUID of a disk, all digits of which are the same.
func uuidBytes(cid string) []byte {
	id := bytes.Repeat([]byte{0x11 * (cid[5] - '0')}, 16)
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x0f|0x80
	return id
}

// addDisk adds the device node of a disk, a regular file, to a fake root.
func (r fakeRoot) addDisk(cid, content string) {
	GinkgoHelper()
	r.write("dev/bosh/"+cid, content)
}

// lockDisk takes the lock of the disk's attachment until the test ends.
func (r fakeRoot) lockDisk(cid string) {
	GinkgoHelper()
	taken, err := lock.Take(system.System{Root: string(r)}, "/dev/bosh/."+cid+".lock")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(taken.Release)
}

var _ = Describe("The persistent disk of a VM that starts", func() {
	const (
		record = "var/vcap/bosh/managed_disk_settings.json"
		hints  = "var/vcap/bosh/persistent_disk_hints.json"
	)
	var (
		root   fakeRoot
		output *bytes.Buffer
		pauses func(number int) // is called for each pause
	)
	BeforeEach(func() {
		root, output = newFakeRoot(), &bytes.Buffer{}
		pauses = func(int) { Fail("the VM waits: " + output.String()) }
		root.addMount("dev/bosh", "0:50")
		root.write(record, disk1)
		root.write(hints, `{"`+disk1+`": {"ID": "`+disk1+`"}}`)
		root.write("bosh/settings/mount-options", "")
		root.addDisk(disk1, ext4Of(disk1))
		// mount(8) records its arguments, and adds a mount with the device numbers of a regular file.
		root.write("bin/mount", "#!/bin/bash\nroot=${0%/bin/mount}\n[[ ! -e $root/busy ]] || { echo injected failure >&2; exit 32; }\n"+
			`echo "mount $*" | sed "s#$root##g" >>"$root/calls"`+"\n"+
			`echo "50 1 $(cat "$root/numbers") / $root/var/vcap/store rw" >>"$root/proc/self/mountinfo"`+"\n")
		root.write("numbers", "0:0\n")
		root.write("calls", "")
	})
	newTestVM := func() *vm {
		v, count := root.newTestVM(output), 0
		v.pause = func(context.Context, time.Duration) error {
			count++
			pauses(count)
			return nil
		}
		return v
	}
	// mount runs the steps for disks.
	mount := func() error {
		v := newTestVM()
		return errors.Join(v.mountPersistentDisk(context.Background()), v.waitForOtherDisks(context.Background()))
	}
	const mountCall = "mount /dev/bosh/" + disk1 + " /var/vcap/store\n"

	It("is mounted before the init program starts", func() {
		root.lockDisk(disk1)
		Expect(mount()).To(Succeed())
		Expect(output.String()).To(Equal("vm-start: disk " + disk1 + " is mounted at /var/vcap/store\n"))
		Expect(root.read("calls")).To(Equal(mountCall))
	})

	It("is mounted with the options from the director", func() {
		root.lockDisk(disk1)
		root.write("bosh/settings/mount-options", "noatime,commit=30")
		Expect(mount()).To(Succeed())
		Expect(root.read("calls")).To(Equal("mount /dev/bosh/" + disk1 + " /var/vcap/store -o noatime,commit=30\n"))
	})

	DescribeTable("is not mounted if the VM has none", func(content *string) {
		root.remove(record)
		if content != nil {
			root.write(record, *content)
		}
		root.write(hints, "{}")
		Expect(mount()).To(Succeed())
		Expect(root.read("calls")).To(BeEmpty())
	},
		Entry("without a record", nil),
		Entry("with an empty record", new("")),
		Entry("with an empty line as record", new("\n")),
	)

	It("is not waited for if it was detached, and the agent's record is removed", func() {
		root.write(hints, `{"`+disk2+`": {"ID": "`+disk1+`"}}`)
		root.addDisk(disk2, "")
		root.lockDisk(disk2)
		Expect(mount()).To(Succeed())
		Expect(output.String()).To(Equal("vm-start: the VM no longer has disk " + disk1 +
			" according to the agent: removing the record that it was mounted\n"))
		Expect(root.exists(record)).To(BeFalse())
		Expect(root.read("calls")).To(BeEmpty())
	})

	DescribeTable("is mounted if the agent's file of disks is unusable", func(write func()) {
		root.lockDisk(disk1)
		write()
		Expect(mount()).To(Succeed())
		Expect(root.read("calls")).To(Equal(mountCall))
	},
		Entry("because it does not exist", func() { root.remove(hints) }),
		Entry("because it is incomplete", func() { root.write(hints, "") }),
	)

	It("is not mounted if the agent's file of disks cannot be read: it may know two disks", func() {
		root.lockDisk(disk1)
		v := newTestVM()
		v.sys.Before = func(call, path string) error {
			if call == "read" && path == disksOfAgent {
				return unix.EIO
			}
			return nil
		}
		Expect(v.mountPersistentDisk(context.Background())).To(MatchError(unix.EIO))
		Expect(v.waitForOtherDisks(context.Background())).To(MatchError(unix.EIO))
		Expect(root.read("calls")).To(BeEmpty())
	})

	It("is not mounted in the middle of a migration to another disk", func() {
		root.lockDisk(disk1)
		root.write(hints, `{"`+disk1+`": {}, "`+disk2+`": {}}`)
		err := newTestVM().mountPersistentDisk(context.Background())
		Expect(err).To(MatchError("the VM stopped in the middle of a migration between its disks; " +
			"recreate the VM, which keeps the data of its disks"))
		Expect(api.ResultOf(err, "").Code).To(Equal("disk-migration-interrupted"))
		Expect(root.read("calls")).To(BeEmpty())
		Expect(root.exists(record)).To(BeTrue())
	})

	It("is mounted if a power failure left the agent's record empty", func() {
		root.lockDisk(disk1)
		root.write(record, "")
		Expect(mount()).To(Succeed())
		Expect(root.read("calls")).To(Equal(mountCall))
		Expect(root.read(record)).To(Equal(disk1))
	})

	DescribeTable("is not mounted if its record is damaged", func(recorded, known string) {
		root.lockDisk(disk1)
		root.write(record, recorded)
		root.write(hints, known)
		err := newTestVM().mountPersistentDisk(context.Background())
		Expect(err).To(MatchError("the agent's record of its mounted disk is damaged, for example by a power failure; " +
			"recreate the VM, which keeps the data of its disks"))
		Expect(api.ResultOf(err, "").Code).To(Equal("agent-record-damaged"))
		Expect(root.read("calls")).To(BeEmpty())
	},
		Entry("and the agent's file of disks is empty, too", "", ""),
		Entry("and the agent knows several disks", "", `{"`+disk1+`": {}, "`+disk2+`": {}}`),
		Entry("and it is another path", "../vda", ""),
	)

	DescribeTable("is waited for", func(prepare func()) {
		prepare()
		pauses = func(number int) {
			Expect(root.read("calls")).To(BeEmpty())
			if number == 200 {
				root.addDisk(disk1, ext4Of(disk1))
				root.lockDisk(disk1)
			}
		}
		Expect(mount()).To(Succeed())
		Expect(root.read("calls")).To(Equal(mountCall))
		const waiting = "vm-start: waiting for disk " + disk1 + " to be attached before any job may start\n"
		Expect(strings.Count(output.String(), waiting)).To(Equal(2), "each 30 seconds")
	},
		Entry("while its node is from an earlier boot", func() {}),
		Entry("while its node is from a killed attachment", func() { root.write("dev/bosh/."+disk1+".lock", "") }),
		Entry("while it has no node", func() { root.remove("dev/bosh/" + disk1) }),
	)

	It("is mounted on retry after a failure, which is logged", func() {
		root.lockDisk(disk1)
		root.write("busy", "")
		pauses = func(int) { root.remove("busy") }
		Expect(mount()).To(Succeed())
		Expect(output.String()).To(Equal("vm-start: waiting for disk " + disk1 + " to be attached before any job may start: " +
			"mount: exit status 32: injected failure\nvm-start: disk " + disk1 + " is mounted at /var/vcap/store\n"))
	})

	It("is mounted on retry if its device is not available at first", func() {
		root.lockDisk(disk1)
		pauses = func(int) {}
		v, failures := newTestVM(), 0
		v.sys.Before = func(call, path string) error {
			if call == "open" && path == "/dev/bosh/"+disk1 && failures < 3 {
				failures++
				return unix.ENXIO
			}
			return nil
		}
		Expect(v.mountPersistentDisk(context.Background())).To(Succeed())
		Expect(output.String()).To(ContainSubstring("may start: open /dev/bosh/" + disk1 + ": no such device or address\n"))
	})

	DescribeTable("is mounted only if it is the disk's filesystem", func(content string, mounted bool) {
		root.lockDisk(disk1)
		root.addDisk(disk1, content)
		err := newTestVM().mountPersistentDisk(context.Background())
		if mounted {
			Expect(err).NotTo(HaveOccurred())
			Expect(root.read("calls")).To(Equal(mountCall))
			return
		}
		Expect(api.ResultOf(err, "").Code).To(Equal("wrong-disk"))
		Expect(err).To(MatchError("the device of disk " + disk1 + " has the filesystem " + api.DiskUUID(disk2) +
			" of another disk, not " + api.DiskUUID(disk1) + "; recreate the VM, which attaches the disk again"))
		Expect(root.read("calls")).To(BeEmpty())
	},
		Entry("ext4", ext4Of(disk1), true),
		Entry("XFS", xfsOf(disk1), true),
		Entry("not ext4 of another disk", ext4Of(disk2), false),
		Entry("not XFS of another disk", xfsOf(disk2), false),
		Entry("or another filesystem, which a job may have created", strings.Repeat("btrfs", 1000), true),
	)

	It("is not used if its device node was replaced while it was mounted", func() {
		root.lockDisk(disk1)
		root.write("numbers", "7:3\n")
		err := newTestVM().mountPersistentDisk(context.Background())
		Expect(err).To(MatchError(ContainSubstring("mount disk " + disk1 + ": its device node changed from 0:0 to 7:3")))
		Expect(err).To(MatchError(ContainSubstring("umount /var/vcap/store"))) // which is not really mounted
	})

	Describe("with several disks", func() {
		BeforeEach(func() {
			root.remove(record)
			root.write(hints, "{}")
		})

		It("is waited for until it is attached", func() {
			root.write(hints, `{"`+disk1+`": {}}`)
			root.lockDisk(disk1)
			root.remove("dev/bosh/" + disk1)
			pauses = func(int) { root.addDisk(disk1, "") }
			Expect(mount()).To(Succeed())
			Expect(output.String()).To(Equal("vm-start: waiting at most one minute for disk " + disk1 + " to be attached\n"))
		})

		It("is waited for if it is a dynamic disk, for one minute at most", func() {
			root.write("var/vcap/data/dynamic_disks/"+disk1, "")
			count := 0
			pauses = func(number int) { count = number }
			Expect(mount()).To(Succeed())
			Expect(output.String()).To(Equal("vm-start: waiting at most one minute for disk " + disk1 + " to be attached\n" +
				"vm-start: starting without disk " + disk1 + "\n"))
			Expect(count).To(Equal(300), "times 0.2 s")
		})

		It("is not waited for if it is attached", func() {
			root.lockDisk(disk1)
			root.write("var/vcap/data/dynamic_disks/"+disk1, "")
			Expect(mount()).To(Succeed())
			Expect(output.String()).To(BeEmpty())
		})
	})

	Describe("of a VM with disk_strategy: recreate", func() {
		BeforeEach(func() { root.write("proc/self/mountinfo", "") })

		It("is a volume of the Pod, and is mounted without a lock", func() {
			Expect(mount()).To(Succeed())
			Expect(root.read("calls")).To(Equal(mountCall))
		})

		It("is mounted if it is a directory", func() {
			root.remove("dev/bosh/" + disk1)
			root.mkdir("dev/bosh/" + disk1)
			root.addMount("dev/bosh/"+disk1, "0:60")
			Expect(mount()).To(Succeed())
			Expect(root.read("calls")).To(Equal("mount --bind /dev/bosh/" + disk1 + " /var/vcap/store\n"))
		})

		It("is not waited for if it is no longer a volume of the Pod, and the agent's record is removed", func() {
			root.remove("dev/bosh/" + disk1)
			Expect(mount()).To(Succeed())
			Expect(output.String()).To(Equal("vm-start: the VM no longer has disk " + disk1 +
				" as a volume: removing the record that it was mounted\n"))
			Expect(root.exists(record)).To(BeFalse())
		})
	})

	// An incomplete answer must not mount a wrong disk, and must not remove the agent's record.
	DescribeTable("is mounted, or the start fails, whichever look at the system fails", func(content, known, expected string) {
		root.lockDisk(disk1)
		pauses = func(int) {}
		for number := 1; ; number++ {
			count := 0
			for _, errno := range []unix.Errno{unix.EIO, unix.ENOMEM, unix.EINTR} {
				root.addDisk(disk1, content)
				root.write(hints, known)
				root.write(record, disk1)
				root.write("calls", "")
				root.write("proc/self/mountinfo", "")
				root.addMount("dev/bosh", "0:50")
				v := newTestVM()
				count = 0
				v.sys.Before = func(string, string) error {
					if count++; count == number {
						return errno
					}
					return nil
				}
				err := v.mountPersistentDisk(context.Background())
				Expect(root.read(record)).To(Equal(disk1))
				Expect(root.read("calls")).To(BeElementOf("", expected))
				if err == nil {
					Expect(root.read("calls")).To(Equal(expected), "call %d: %s", number, errno)
				}
				if expected == "" {
					Expect(err).To(HaveOccurred())
				}
			}
			if count < number {
				Expect(number).To(BeNumerically(">", 3))
				return
			}
		}
	},
		Entry("with the right disk", ext4Of(disk1), `{"`+disk1+`": {}}`, mountCall),
		Entry("with another disk", ext4Of(disk2), `{"`+disk1+`": {}}`, ""),
		Entry("in the middle of a migration", ext4Of(disk1), `{"`+disk1+`": {}, "`+disk2+`": {}}`, ""),
	)
})

var _ = Describe("The disks that the agent knows", func() {
	known := func(hints string) ([]string, bool) {
		GinkgoHelper()
		root := newFakeRoot()
		root.write("var/vcap/bosh/persistent_disk_hints.json", hints)
		cids, ok, err := root.newTestVM(io.Discard).knownDisks()
		Expect(err).NotTo(HaveOccurred())
		return cids, ok
	}

	DescribeTable("are the top-level keys", func(hints string, disks ...string) {
		cids, ok := known(hints)
		Expect(ok).To(BeTrue())
		Expect(cids).To(HaveExactElements(disks))
	},
		Entry("of an empty object", `{}`),
		Entry("of one disk", `{"disk-1":{"ID":"disk-1","DeviceID":"","VolumeID":"/dev/bosh/disk-1","Path":"/dev/bosh/disk-1"}}`, "disk-1"),
		Entry("of two disks", `{"disk-1": {"ID": "disk-3"}, "disk-2": {"a": {"b": {}}}}`, "disk-1", "disk-2"),
		Entry("with strings as values", `{"disk-1": "/dev/bosh/disk-1", "disk-2": ""}`, "disk-1", "disk-2"),
		Entry("with quotes and braces in strings", `{"disk-1": {"Path": "\"},{\"disk-3\": {"}, "disk-2": "\\"}`, "disk-1", "disk-2"),
		Entry("with escapes in keys", `{"disk-\u0031": {}, "a\/b\"c": {}}`, `a/b"c`, "disk-1"),
		Entry("with other values", `{"disk-1": null, "disk-2": [{"disk-3": {}}], "disk-4": 5}`, "disk-1", "disk-2", "disk-4"),
	)

	DescribeTable("are unknown", func(hints string) {
		_, ok := known(hints)
		Expect(ok).To(BeFalse())
	},
		Entry("with an empty file", ""),
		Entry("with an incomplete file", `{"disk-1": {"ID"`),
		Entry("with a list", `["disk-1"]`),
		Entry("with null", `null`),
	)

	It("are unknown without the file", func() {
		_, ok, err := newFakeRoot().newTestVM(io.Discard).knownDisks()
		Expect(err).NotTo(HaveOccurred())
		Expect(ok).To(BeFalse())
	})
})
