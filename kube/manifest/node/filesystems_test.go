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

	"bosh-kubernetes-cpi/kube/manifest/node"
)

// volume is the volume of a VM: a real filesystem, in a file.
type volume struct {
	folder string // see testdata/boot/container
	env    []string
}

// filesystems are those of nodes and of volumes. Each has its way to tell the size of the file that it is made in.
var filesystems = map[string][]string{
	"ext4": {"mkfs.ext4", "-q", "-F", "-m", "0"},
	"xfs":  {"mkfs.xfs", "-q"},
}

// newVolume makes the volume of a VM of the stemcell, with a filesystem of this size.
func newVolume(stemcell fakeRoot, filesystem string, bytes int64, options ...string) volume {
	GinkgoHelper()
	v := volume{folder: filepath.Dir(stemcell.root), env: []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}}
	stemcell.remove("proc")
	for _, folder := range []string{"proc", "sys/fs/cgroup", "dev/shm"} {
		stemcell.mkdir(folder)
	}
	for i := range 40 {
		stemcell.write(fmt.Sprintf("var/vcap/bosh/bin/program-%d", i), random(100_000))
	}
	Expect(os.Rename(stemcell.root, filepath.Join(v.folder, "image"))).To(Succeed())
	Expect(os.WriteFile(filepath.Join(v.folder, "program"), []byte(node.VMStart()[2]), 0o600)).To(Succeed())

	image := filepath.Join(v.folder, "volume.img")
	Expect(os.WriteFile(image, nil, 0o600)).To(Succeed())
	Expect(os.Truncate(image, bytes)).To(Succeed())
	mkfs := append(append(filesystems[filesystem], options...), image)
	out, err := exec.Command(mkfs[0], mkfs[1:]...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	if filesystem == "xfs" {
		v.env = append(v.env, "OPTIONS=nouuid") // copies are mounted, too
	}
	return v
}

// random is content that no filesystem holds without writing it.
func random(bytes int) string {
	content := make([]byte, bytes)
	for i := range content {
		content[i] = byte(rand.IntN(256))
	}
	return string(content)
}

// run runs a program of testdata/boot, and returns what it says.
func (v volume) run(program string, arguments ...string) (output string, err error) {
	GinkgoHelper()
	cmd := exec.Command(testdata("boot/"+program), append([]string{v.folder}, arguments...)...)
	cmd.Env = v.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var _ = Describe("A VM's start, on a real filesystem", Label("filesystems"), func() {
	// withSystemd makes of the stemcell one with systemd.
	withSystemd := func(w fakeRoot) fakeRoot {
		w.mkdir("etc/systemd")
		w.remove("usr/sbin")
		return w
	}
	withResolvconf := func(w fakeRoot) fakeRoot {
		w.write("etc/resolvconf/resolv.conf.d/tail", "")
		return w
	}

	DescribeTable("is as it was after a power cut at any moment of its first start and of the next", func(filesystem string, setUp func(fakeRoot) fakeRoot) {
		output, err := newVolume(setUp(newStemcellRoot()), filesystem, 320<<20).run("power-cuts")
		Expect(err).NotTo(HaveOccurred(), output)
		var cuts int
		_, err = fmt.Sscanf(output[strings.LastIndex(output, "power cuts:"):], "power cuts: %d", &cuts)
		Expect(err).NotTo(HaveOccurred())
		Expect(cuts).To(BeNumerically(">=", 40))
	},
		Entry("on ext4, with runit", "ext4", withResolvconf),
		Entry("on XFS, with systemd", "xfs", withSystemd),
	)

	DescribeTable("succeeds on a full disk, and on one that is filled again", func(filesystem, what string, options ...string) {
		output, err := newVolume(newStemcellRoot(), filesystem, 320<<20, options...).run("full-disk", what)
		Expect(err).NotTo(HaveOccurred(), output)
	},
		Entry("of ext4, without space", "ext4", "space"),
		Entry("of ext4, without inodes", "ext4", "inodes", "-N", "1024"),
		Entry("of XFS, without space", "xfs", "space"),
	)
})
