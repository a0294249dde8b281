//go:build e2e

package node_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Formatting a Block volume with the real mkfs", Label("filesystems"), func() {
	// runOnFile runs a script that uses the libraries, with a file as the Block volume.
	runOnFile := func(filesystem, file, script string) (output string, err error) {
		GinkgoHelper()
		libraries := ". lib/shell.sh\n"
		for _, library := range []string{"pause", "device", "loop", "filesystem", "files", "volume"} {
			libraries += ". lib/" + library + ".sh\n"
		}
		cmd := exec.Command("/bin/bash", "-c", libraries+script)
		cmd.Env = append(os.Environ(), "LC_ALL=C", "DISK=disk-6d2d1c5a-6f1e-4c3b-9a59-0c9f4b8f1f10", "FILESYSTEM="+filesystem, "SIZE_MIB=1",
			"VM=bosh/agent-b", "FILE="+file, "BOSH_NODE_ROOT="+filepath.Dir(file))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	newFile := func(bytes int64) string {
		GinkgoHelper()
		directory := GinkgoT().TempDir()
		for _, name := range []string{"dev", "mnt"} {
			Expect(os.Mkdir(filepath.Join(directory, name), 0o755)).To(Succeed())
		}
		file := filepath.Join(directory, "file")
		Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
		Expect(os.Truncate(file, bytes)).To(Succeed())
		return file
	}

	// createLoop creates the loop device $loop for the file, and makes /dev/volume a link to it.
	const createLoop = `
		loop=$(losetup --find --show "$FILE")
		trap 'losetup --detach "$loop"' EXIT
		ln -sf "$loop" "$root/dev/volume"
`

	DescribeTable("keeps the formatting mark until mkfs finishes", func(filesystem string, bytes int64) {
		output, err := runOnFile(filesystem, newFile(bytes), createLoop+`
			mkfs.`+filesystem+`() {
				command mkfs.`+filesystem+` "$@"
				formatting_interrupted "$loop" "$DISK" || fail "mkfs overwrote the mark"
			}
			format "$loop"
			! formatting_interrupted "$loop" "$DISK"`)
		Expect(err).NotTo(HaveOccurred(), output)
	},
		Entry("ext4, 16 MiB", "ext4", int64(16)<<20),
		Entry("ext4, 10 GiB", "ext4", int64(10)<<30),
		Entry("ext4, 4 TiB", "ext4", int64(4)<<40),
		Entry("XFS, 320 MiB", "xfs", int64(320)<<20),
		Entry("XFS, 10 GiB", "xfs", int64(10)<<30),
		Entry("XFS, 4 TiB", "xfs", int64(4)<<40),
	)

	DescribeTable("leaves a usable disk for the next VM if mkfs is killed during any write", func(filesystem string, bytes int64) {
		var killed int
		for write := 1; ; write += (write + 3) / 4 {
			file := newFile(bytes)
			output, err := runOnFile(filesystem, file, fmt.Sprintf(createLoop+`
				mkfs.%[1]s() { strace -qq -o /dev/null -e trace=pwrite64 -e inject=pwrite64:signal=KILL:when=%[2]d mkfs.%[1]s "$@"; }
				format "$loop"`, filesystem, write))
			if err == nil {
				break
			}
			killed++
			Expect(err).To(HaveField("ExitCode()", 128+9), output)
			output, err = runOnFile(filesystem, file, createLoop+`
				prepare_device
				! formatting_interrupted "$loop" "$DISK"
				[[ $(filesystem_type "$loop") == "$FILESYSTEM" ]]
				unshare --mount bash -c 'mount "$0" "$1" && touch "$1/file"' "$loop" "$root/mnt"`)
			Expect(err).NotTo(HaveOccurred(), "killed at write %d: %s", write, output)
		}
		Expect(killed).To(BeNumerically(">", 10))
	},
		Entry("ext4, 64 MiB", "ext4", int64(64)<<20),
		Entry("ext4, 10 GiB", "ext4", int64(10)<<30),
		Entry("XFS, 320 MiB", "xfs", int64(320)<<20),
	)
})
