//go:build linux

package filesystem_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/filesystem"
	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/test/harness/filesystems"
)

// writeFile writes a file to the filesystem on the loop device.
func writeFile(sys system.System) {
	GinkgoHelper()
	filesystems.WhileMounted(sys, path, func(directory string) {
		Expect(os.WriteFile(filepath.Join(directory, "data"), []byte("of a job"), 0o600)).To(Succeed())
	})
}

// expectFile checks the file of writeFile.
func expectFile(sys system.System) {
	GinkgoHelper()
	filesystems.WhileMounted(sys, path, func(directory string) {
		Expect(os.ReadFile(filepath.Join(directory, "data"))).To(Equal([]byte("of a job")))
	})
}

// makeDirty copies the disk while it is mounted and a file is new, as a snapshot does: the journal of the copy is not replayed.
func makeDirty(sys system.System) {
	GinkgoHelper()
	snapshot := filepath.Join(sys.Root, "snapshot")
	filesystems.WhileMounted(sys, path, func(directory string) {
		Expect(os.WriteFile(filepath.Join(directory, "data"), []byte("of a job"), 0o600)).To(Succeed())
		filesystems.Run("sync", "--file-system", directory)
		Expect(os.WriteFile(filepath.Join(directory, "journal"), []byte("x"), 0o600)).To(Succeed())
		filesystems.Run("sync", filepath.Join(directory, "journal"))
		filesystems.Run("cp", "--sparse=always", sys.Path(image), snapshot)
	})
	filesystems.Run("dd", "if="+snapshot, "of="+sys.Path(path), "bs=1M", "conv=fsync", "status=none")
}

var _ = Describe("SetUUID", func() {
	setUUID := func(sys system.System) error { return filesystem.SetUUID(context.Background(), sys, path, uuid) }

	// newDisk returns a loop device with a filesystem and a file.
	newDisk := func(kind string, arguments ...string) system.System {
		GinkgoHelper()
		bytes := int64(16 * mib)
		if kind == "xfs" {
			bytes = xfsBytes
		}
		sys := newRoot(bytes)
		mkfs(sys, kind, arguments...)
		useLoop(sys)
		writeFile(sys)
		return sys
	}

	expectUUID := func(sys system.System) {
		GinkgoHelper()
		Expect(filesystem.Identify(sys, path)).To(HaveField("UUID", uuid))
		Expect(filesystems.Run("blkid", "-p", "-o", "value", "-s", "UUID", sys.Path(path))).To(Equal(uuid + "\n"))
	}

	DescribeTable("changes the UUID of", func(kind string, arguments ...string) {
		sys := newDisk(kind, arguments...)
		Expect(setUUID(sys)).To(Succeed())
		expectUUID(sys)
		filesystems.ExpectValid(sys, path, kind)
		expectFile(sys)
	},
		Entry("ext4 with checksums that depend on the UUID", "ext4", "-O", "metadata_csum,^metadata_csum_seed"),
		Entry("ext4 with checksums that do not depend on it", "ext4", "-O", "metadata_csum,metadata_csum_seed"),
		Entry("ext4 without checksums", "ext4", "-O", "^metadata_csum,^metadata_csum_seed,^uninit_bg"),
		Entry("ext4 with checksums of the groups only, as of old releases", "ext4", "-O", "^metadata_csum,^metadata_csum_seed,uninit_bg"),
		Entry("XFS", "xfs"),
	)

	DescribeTable("replays the journal first:", func(kind string) {
		sys := newDisk(kind)
		makeDirty(sys)
		Expect(setUUID(sys)).To(Succeed())
		expectUUID(sys)
		filesystems.ExpectValid(sys, path, kind)
		expectFile(sys)
	},
		Entry("ext4", "ext4"),
		Entry("XFS", "xfs"),
	)

	It("uses the backups of ext4 superblocks, which have the old UUID", func() {
		sys := newDisk("ext4", "-b", "1024", "-O", "metadata_csum,^metadata_csum_seed")
		Expect(setUUID(sys)).To(Succeed())
		write(sys, 1024, make([]byte, 1024))
		out, _ := exec.Command("e2fsck", "-f", "-y", sys.Path(path)).CombinedOutput()
		Expect(string(out)).NotTo(MatchRegexp(`[Ii]node \d`), "the checksums of inodes are valid")
		filesystems.Run("e2fsck", "-f", "-n", sys.Path(path))
		expectFile(sys)
	})

	It("changes nothing if the filesystem has the UUID", func() {
		sys := newRoot(16 * mib)
		mkfs(sys, "ext4", "-U", uuid)
		Expect(setUUID(failCall(sys, 4, os.ErrInvalid))).To(Succeed(), "reads only")
	})

	It("fails if there is no filesystem", func() {
		Expect(setUUID(newRoot(mib))).To(MatchError(filesystem.ErrUnknown))
	})

	It("fails for an invalid UUID", func() {
		sys := newRoot(16 * mib)
		mkfs(sys, "ext4")
		Expect(filesystem.SetUUID(context.Background(), sys, path, "disk-1")).To(MatchError(`"disk-1" is not a UUID`))
	})

	It("does not make encrypted files unreadable", func() {
		sys := newRoot(16 * mib)
		mkfs(sys, "ext4", "-O", "stable_inodes")
		Expect(setUUID(sys)).To(MatchError("it has encrypted files that cannot be read with another UUID"))
	})

	It("does not hide that a superblock is damaged", func() {
		sys := newRoot(16 * mib)
		mkfs(sys, "ext4")
		write(sys, 1024+0x3fc, []byte("x"))
		Expect(setUUID(sys)).To(MatchError("it has errors: the checksum of the superblock is wrong; repair it with e2fsck or xfs_repair"))
	})

	DescribeTable("does not change a filesystem that cannot be mounted:", func(kind string, damage func(sys system.System)) {
		sys := newDisk(kind)
		damage(sys)
		Expect(setUUID(sys)).To(MatchError(filesystem.ErrDamaged))
		Expect(filesystem.Identify(sys, path)).To(HaveField("UUID", otherUUID))
	},
		Entry("ext4", "ext4", func(sys system.System) {
			makeDirty(sys)
			write(sys, 2*1024, make([]byte, 1024)) // the group descriptors
		}),
		Entry("XFS", "xfs", func(sys system.System) { write(sys, 108, []byte("label")) }), // with a wrong checksum
	)

	It("reports what xfs_admin prints if it changes nothing", func() {
		sys := newDisk("xfs")
		filesystems.FakeProgram("xfs_admin", "echo the reason")
		Expect(setUUID(sys)).To(MatchError("xfs_admin: it has the UUID " + otherUUID + " instead of " + uuid + ": the reason"))
	})

	// killsAtWrite puts a program before that of the system, which is killed when it writes for the n-th time. The result sets n; 0: never.
	killsAtWrite := func(program string) (setNumber func(number int)) {
		GinkgoHelper()
		if _, err := exec.LookPath("strace"); err != nil {
			Skip("needs strace, to kill a program during a certain write")
		}
		original, err := exec.LookPath(program)
		Expect(err).NotTo(HaveOccurred())
		number := filepath.Join(GinkgoT().TempDir(), "number")
		filesystems.FakeProgram(program, fmt.Sprintf(`number=$(cat %s)
			[ "$number" != 0 ] || exec %s "$@"
			exec strace -f -qq -o /dev/null -e trace=pwrite64 -e inject=pwrite64:signal=KILL:when="$number" %[2]s "$@"`, number, original))
		return func(n int) {
			GinkgoHelper()
			Expect(os.WriteFile(number, []byte(strconv.Itoa(n)), 0o600)).To(Succeed())
		}
	}

	// logWrites is how often xfs_admin and xfs_repair write to the log, of 64 MiB: the first record, and then 256 KiB at once.
	const logWrites = 1 + 64*4

	// expectSuccess sets the UUID, and checks the filesystem.
	expectSuccess := func(sys system.System, number int) {
		GinkgoHelper()
		Expect(setUUID(sys)).To(Succeed(), "after write %d", number)
		expectUUID(sys)
		filesystems.ExpectValid(sys, path, "xfs")
		expectFile(sys)
	}

	It("succeeds after xfs_admin was killed during any write", func() {
		template := newDisk("xfs")
		killAt := killsAtWrite("xfs_admin")
		for _, number := range []int{1, 2, logWrites / 2, logWrites, logWrites + 1, logWrites + 2, logWrites + 3} {
			sys := copyOf(template)
			killAt(number)
			Expect(setUUID(sys)).NotTo(Succeed(), "write %d", number)
			killAt(0)
			expectSuccess(sys, number)
		}
	})

	It("succeeds after also xfs_repair was killed during any write", func() {
		template := newDisk("xfs")
		killAdminAt, killRepairAt := killsAtWrite("xfs_admin"), killsAtWrite("xfs_repair")
		killAdminAt(logWrites / 2)
		Expect(setUUID(template)).NotTo(Succeed())
		killAdminAt(0)
		for _, number := range []int{1, 2, 3, 4, 60, logWrites, logWrites + 30} {
			sys := copyOf(template)
			killRepairAt(number)
			_ = setUUID(sys)
			killRepairAt(0)
			expectSuccess(sys, number)
		}
	})

	DescribeTable("returns an error, or succeeds, if a call fails, and succeeds when it is repeated:", func(kind string, errnos ...unix.Errno) {
		template := newDisk(kind)
		eachFailure(template, errnos, func(failing system.System, interrupted bool) {
			sys := copyOf(template)
			failing.Root = sys.Root
			err := setUUID(failing)
			if interrupted {
				Expect(err).NotTo(HaveOccurred())
			}
			if err == nil {
				Expect(filesystem.Identify(sys, path)).To(HaveField("UUID", uuid))
			}
			_ = filesystem.UnmountLeftover(sys)
			Expect(setUUID(sys)).To(Succeed())
			expectUUID(sys)
			filesystems.ExpectValid(sys, path, kind)
		})
	},
		Entry("ext4", "ext4", unix.EIO, unix.ENOMEM, unix.EINTR),
		Entry("XFS, which takes longer", "xfs", unix.EIO),
	)
})
