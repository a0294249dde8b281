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

var _ = Describe("A mkfs on a Block volume, with the real program,", Label("filesystems"), func() {
	// block runs a function of the libraries on a Block volume that a file stands for.
	block := func(filesystem, file, function string) (output string, err error) {
		GinkgoHelper()
		script := ". lib/shell.sh\n"
		for _, library := range []string{"pause", "device", "loop", "filesystem", "files", "volume"} {
			script += ". lib/" + library + ".sh\n"
		}
		cmd := exec.Command("/bin/bash", "-c", script+function)
		cmd.Env = append(os.Environ(), "LC_ALL=C", "DISK=disk-6d2d1c5a-6f1e-4c3b-9a59-0c9f4b8f1f10", "FILESYSTEM="+filesystem, "SIZE_MIB=1", "VM=bosh/agent-b",
			"FILE="+file, "BOSH_NODE_ROOT="+filepath.Dir(file))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	newFile := func(bytes int64) string {
		GinkgoHelper()
		folder := GinkgoT().TempDir()
		for _, name := range []string{"dev", "mnt"} {
			Expect(os.Mkdir(filepath.Join(folder, name), 0o755)).To(Succeed())
		}
		file := filepath.Join(folder, "file")
		Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
		Expect(os.Truncate(file, bytes)).To(Succeed())
		return file
	}

	// onLoop has the file behind a loop device, $loop, which is /dev/volume.
	const onLoop = `
		loop=$(losetup --find --show "$FILE")
		trap 'losetup --detach "$loop"' EXIT
		ln -sf "$loop" "$root/dev/volume"
`

	DescribeTable("leaves its mark in place until it has ended", func(filesystem string, bytes int64) {
		output, err := block(filesystem, newFile(bytes), onLoop+`
			mkfs.`+filesystem+`() {
				command mkfs.`+filesystem+` "$@"
				marked "$loop" "$DISK" || fail "the mark is gone"
			}
			format "$loop"
			! marked "$loop" "$DISK"`)
		Expect(err).NotTo(HaveOccurred(), output)
	},
		Entry("of ext4", "ext4", int64(16)<<20),
		Entry("of ext4, larger", "ext4", int64(10)<<30),
		Entry("of ext4, large", "ext4", int64(4)<<40),
		Entry("of XFS", "xfs", int64(320)<<20),
		Entry("of XFS, larger", "xfs", int64(10)<<30),
		Entry("of XFS, large", "xfs", int64(4)<<40),
	)

	DescribeTable("leaves a disk that the next VM can have when it is killed at any of its writes", func(filesystem string, bytes int64) {
		var killed int
		for write := 1; ; write += (write + 3) / 4 {
			file := newFile(bytes)
			output, err := block(filesystem, file, fmt.Sprintf(onLoop+`
				mkfs.%[1]s() { strace -qq -o /dev/null -e trace=pwrite64 -e inject=pwrite64:signal=KILL:when=%[2]d mkfs.%[1]s "$@"; }
				format "$loop"`, filesystem, write))
			if err == nil {
				break
			}
			killed++
			Expect(err).To(HaveField("ExitCode()", 128+9), output)
			output, err = block(filesystem, file, onLoop+`
				find_device
				! marked "$loop" "$DISK"
				[[ $(filesystem "$loop") == "$FILESYSTEM" ]]
				unshare --mount bash -c 'mount "$0" "$1" && touch "$1/file"' "$loop" "$root/mnt"`)
			Expect(err).NotTo(HaveOccurred(), "killed at write %d: %s", write, output)
		}
		Expect(killed).To(BeNumerically(">", 10))
	},
		Entry("of ext4", "ext4", int64(64)<<20),
		Entry("of ext4, larger", "ext4", int64(10)<<30),
		Entry("of XFS", "xfs", int64(320)<<20),
	)
})
