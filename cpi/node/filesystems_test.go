//go:build e2e

package node_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node"
)

// ephemeralDisk is an ephemeral disk of a VM, with a real filesystem in an image file.
type ephemeralDisk struct {
	directory string // see testdata/boot/container
	env       []string
}

// mkfsCommands are the commands that create the filesystems of nodes and volumes.
var mkfsCommands = map[string][]string{
	"ext4": {"mkfs.ext4", "-q", "-F", "-m", "0"},
	"xfs":  {"mkfs.xfs", "-q"},
}

// newEphemeralDisk creates the ephemeral disk, with a filesystem, of a VM with this stemcell.
func newEphemeralDisk(stemcell fakeRoot, filesystem string, bytes int64, options ...string) ephemeralDisk {
	GinkgoHelper()
	d := ephemeralDisk{directory: filepath.Dir(stemcell.root), env: []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}}
	stemcell.remove("proc")
	for _, directory := range []string{"proc", "sys/fs/cgroup", "dev/shm"} {
		stemcell.mkdir(directory)
	}
	for i := range 40 {
		stemcell.write(fmt.Sprintf("var/vcap/bosh/bin/program-%d", i), random(100_000))
	}
	Expect(os.Rename(stemcell.root, filepath.Join(d.directory, "image"))).To(Succeed())
	Expect(os.WriteFile(filepath.Join(d.directory, "program"), []byte(node.VMStart()[2]), 0o600)).To(Succeed())

	image := filepath.Join(d.directory, "volume.img")
	Expect(os.WriteFile(image, nil, 0o600)).To(Succeed())
	Expect(os.Truncate(image, bytes)).To(Succeed())
	mkfs := append(append(mkfsCommands[filesystem], options...), image)
	out, err := exec.Command(mkfs[0], mkfs[1:]...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	if filesystem == "xfs" {
		d.env = append(d.env, "OPTIONS=nouuid") // to mount copies
	}
	return d
}

// random returns random content, which filesystems can neither compress nor store as holes.
func random(bytes int) string {
	content := make([]byte, bytes)
	for i := range content {
		content[i] = byte(rand.IntN(256))
	}
	return string(content)
}

// run runs a program of testdata/boot, and returns its output.
func (d ephemeralDisk) run(program string, arguments ...string) (output string, err error) {
	GinkgoHelper()
	cmd := exec.Command(testdata("boot/"+program), append([]string{d.directory}, arguments...)...)
	cmd.Env = d.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var _ = Describe("vm-start.sh on a real filesystem", Label("filesystems"), func() {
	// withSystemd changes the stemcell's init program to systemd.
	withSystemd := func(root fakeRoot) fakeRoot {
		root.mkdir("etc/systemd")
		root.remove("usr/sbin")
		return root
	}
	withResolvconf := func(root fakeRoot) fakeRoot {
		root.write("etc/resolvconf/resolv.conf.d/tail", "")
		return root
	}

	DescribeTable("loses no files in a power failure at any point of two starts", func(filesystem string, change func(fakeRoot) fakeRoot) {
		output, err := newEphemeralDisk(change(newStemcellRoot()), filesystem, 320<<20).run("power-cuts")
		Expect(err).NotTo(HaveOccurred(), output)
		var cuts int
		_, err = fmt.Sscanf(output[strings.LastIndex(output, "power cuts:"):], "power cuts: %d", &cuts)
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("power cuts", cuts)
		Expect(cuts).To(BeNumerically(">=", 40))
	},
		Entry("ext4, with runit", "ext4", withResolvconf),
		Entry("XFS, with systemd", "xfs", withSystemd),
	)

	DescribeTable("succeeds on a full disk, and again after the disk was refilled", func(filesystem, resource string, options ...string) {
		output, err := newEphemeralDisk(newStemcellRoot(), filesystem, 320<<20, options...).run("full-disk", resource)
		Expect(err).NotTo(HaveOccurred(), output)
	},
		Entry("ext4, without space", "ext4", "space"),
		Entry("ext4, without inodes", "ext4", "inodes", "-N", "1024"),
		Entry("XFS, without space", "xfs", "space"),
	)
})
