//go:build linux

package boot

import (
	"context"
	"errors"
	"os"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

var _ = Describe("The ephemeral disk of a VM that starts", func() {
	var root fakeRoot
	BeforeEach(func() { root = newStemcellRoot() })

	// boot starts the VM with an ephemeral disk with these options, and the content of an earlier start.
	boot := func(options string) (output string) {
		GinkgoHelper()
		c := root.start(volumes + `cp -a "$root/bosh/ephemeral-disk" "$root/saved"
			mount -t tmpfs -o ` + options + ` tmpfs "$root/bosh/ephemeral-disk"
			cp -a "$root/saved/." "$root/bosh/ephemeral-disk"; rm -rf "$root/saved"`)
		Expect(c.wait()).To(Succeed(), c.output.String)
		return openFilesWarning(c.output.String())
	}

	DescribeTable("is full", func(mib, inodes, free, factor int, full bool) {
		stat := unix.Statfs_t{Frsize: 1 << 20, Bavail: uint64(mib), Files: uint64(inodes), Ffree: uint64(free)}
		Expect(isFull(stat, uint64(factor))).To(Equal(full))
	},
		Entry("without space", 7, 1000, 1000, 1, true),
		Entry("without inodes", 8, 1000, 127, 1, true),
		Entry("but not with enough of both", 8, 1000, 128, 1, false),
		Entry("or if the filesystem reports no inodes", 8, 0, 0, 1, false),
		Entry("for a reserve without twice the space", 15, 1000, 256, 2, true),
		Entry("for a reserve without twice the inodes", 16, 1000, 255, 2, true),
		Entry("but not with enough for a reserve", 16, 1000, 256, 2, false),
	)

	It("loses its reserve only when it is full", func() {
		root.write("bosh/ephemeral-disk/reserve/space", "")
		root.setInit(`[[ ! -e $root/bosh/ephemeral-disk/reserve ]] || echo reserved >>"$root/calls"`)
		Expect(boot("size=16m")).NotTo(ContainSubstring("full"))
		Expect(root.calls()).To(ContainElement("reserved"))
		root.restart()
		Expect(boot("size=7m")).To(ContainSubstring("vm-start: the VM's ephemeral disk is full: remove files from /var/vcap"))
		Expect(root.calls()).NotTo(ContainElement("reserved"))
	})

	It("has a reserve for the next start", func() {
		root.expectBoot()
		Expect(os.ReadDir(root.path("bosh/ephemeral-disk/reserve"))).To(HaveLen(129))
		Expect(os.Stat(root.path("bosh/ephemeral-disk/reserve/space"))).To(HaveField("Size()", int64(8<<20)))
	})

	It("has no reserve if its filesystem cannot allocate space", func() {
		root.expectBoot("FAIL_CALLS=fallocate /bosh/ephemeral-disk/reserve.new/space", "FAIL_ERRNO="+strconv.Itoa(int(unix.EOPNOTSUPP)))
		Expect(root.exists("bosh/ephemeral-disk/reserve")).To(BeFalse())
		Expect(root.exists("bosh/ephemeral-disk/reserve.new")).To(BeFalse())
	})

	It("keeps earlier changes visible when it is full, and new changes are in memory", func() {
		root.setInit(`echo of the VM >"$root/etc/hosts"`)
		root.expectBoot()
		root.restart()
		root.remove("bosh/ephemeral-disk/changes/opt") // without earlier changes
		root.setInit(`PATH=$HOST_PATH; cat "$root/etc/hosts" >>"$root/calls"
			echo new >"$root/etc/new"; echo new >"$root/opt/new"; cat "$root"/{etc,opt}/new >>"$root/calls"`)
		c := root.start(volumes + `cp -a "$root/bosh/ephemeral-disk" "$root/saved"; rm -rf "$root"/saved/{reserve,changes/*/work/*}
			mount -t tmpfs -o nr_inodes=200 tmpfs "$root/bosh/ephemeral-disk"
			cp -a "$root/saved/." "$root/bosh/ephemeral-disk"; rm -rf "$root/saved"
			for ((i = 0; i < 200; i++)); do { : >"$root/bosh/ephemeral-disk/vcap/fill-$i"; } 2>/dev/null || break; done`)
		Expect(c.wait()).To(Succeed(), c.output.String)
		Expect(c.output.String()).To(And(
			ContainSubstring("vm-start: the ephemeral disk has no space for changes in /etc: new changes are lost when the VM restarts\n"),
			ContainSubstring("no space for changes in /opt: new changes are lost"),
		))
		Expect(root.calls()).To(ContainElements("of the VM", "new"))
		Expect(root.exists("bosh/memory")).To(BeFalse())
	})

	It("has a complete reserve or none, whichever system call fails", func() {
		for _, number := range append([]int{200}, 1, 2, 3, 4, 5, 6, 7, 8, 9, 70, 133, 134, 135, 136) {
			root.remove("bosh/ephemeral-disk/reserve")
			v, count := root.newTestVM(GinkgoWriter), 0
			v.sys.Before = func(string, string) error {
				if count++; count == number {
					return unix.EIO
				}
				return nil
			}
			err := v.createReserve(context.Background())
			if number > count {
				Expect(err).NotTo(HaveOccurred())
				Expect(count).To(Equal(135))
			} else {
				Expect(err).To(MatchError(unix.EIO))
			}
			if root.exists("bosh/ephemeral-disk/reserve") {
				Expect(os.ReadDir(root.path("bosh/ephemeral-disk/reserve"))).To(HaveLen(129))
			}
		}
	})

	It("shows earlier changes when it is full, or the start fails, whichever system call fails", func() {
		if os.Geteuid() != 0 {
			Skip("needs root: a mount namespace in this process")
		}
		root.write("bosh/ephemeral-disk/changes/etc/upper/of-the-vm", "")
		o, target := overlay{"/etc", ephemeralDisk + "/changes/etc"}, "/tmp"
		for number, finished := 1, false; !finished; number++ {
			Expect(onMainThread(func() error {
				return inMountNamespace(func() error {
					if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
						return err
					}
					v, count := root.newTestVM(GinkgoWriter), 0
					v.sys.Before = func(string, string) error {
						if count++; count == number {
							return unix.EIO
						}
						return nil
					}
					if err := v.mountInMemory(o, target); err != nil {
						return nil // the start fails
					}
					finished = count < number
					_, err := os.Stat(root.path("tmp/of-the-vm"))
					return errors.Join(err, os.WriteFile(root.path("tmp/new"), nil, 0o600))
				})
			})).To(Succeed())
			Expect(root.exists("bosh/ephemeral-disk/changes/etc/upper/new")).To(BeFalse())
		}
	})
})
