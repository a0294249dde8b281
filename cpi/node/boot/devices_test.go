//go:build linux

package boot

import (
	"io"
	"os"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
)

var _ = Describe("A VM that starts with a real device", func() {
	var root fakeRoot
	BeforeEach(func() {
		if os.Geteuid() != 0 {
			Skip("needs root: loop devices")
		}
		root = newStemcellRoot()
		root.write("bosh/ephemeral-disk/vcap/bosh/agent.json", "{}")
		root.write("bosh/ephemeral-disk/vcap/bosh/managed_disk_settings.json", disk1)
		root.mkdir("bosh/ephemeral-disk/vcap/store")
		root.setInit(`PATH=$HOST_PATH; findmnt -no FSTYPE,OPTIONS "$root/var/vcap/store" >>"$root/calls"`)
	})

	// addLoop returns a loop device with a filesystem.
	addLoop := func(uuid string) (device string) {
		GinkgoHelper()
		image := root.path("image")
		Expect(os.WriteFile(image, nil, 0o600)).To(Succeed())
		Expect(os.Truncate(image, 8<<20)).To(Succeed())
		Expect(exec.Command("mkfs.ext4", "-q", "-U", uuid, image).Run()).To(Succeed())
		output, err := exec.Command("losetup", "--find", "--show", image).Output()
		Expect(err).NotTo(HaveOccurred())
		device = strings.TrimSpace(string(output))
		DeferCleanup(func() { Expect(exec.Command("losetup", "--detach", device).Run()).To(Succeed()) })
		return device
	}
	// start starts a VM with disk_strategy: recreate, which has the device as a volume.
	start := func(device string) *container {
		GinkgoHelper()
		root.write("dev/bosh/"+disk1, "")
		return root.start(`mount --bind ` + device + ` "$root/dev/bosh/` + disk1 + `"`)
	}

	It("mounts the disk's filesystem with its options", func() {
		root.write("bosh/settings/mount-options", "noatime,commit=30")
		c := start(addLoop(api.DiskUUID(disk1)))
		Expect(c.wait()).To(Succeed(), c.output.String)
		Expect(root.calls()).To(ContainElement(MatchRegexp(`^ext4 +rw,noatime,.*commit=30`)))
	})

	It("does not mount another filesystem", func() {
		c := start(addLoop(api.DiskUUID(disk2)))
		Expect(c.wait()).NotTo(Succeed())
		Expect(c.output.String()).To(ContainSubstring("error: the device of disk " + disk1 + " has the filesystem " + api.DiskUUID(disk2)))
		Expect(root.calls()).NotTo(ContainElement(HavePrefix("init")))
	})

	It("recognizes the device of a disk by its type", func() {
		v := newVM(root.newTestVM(io.Discard).sys, nil)
		Expect(unix.Mknod(root.path("dev/bosh/"+disk1), unix.S_IFBLK|0o600, int(unix.Mkdev(1, 0)))).To(Succeed())
		root.write("dev/bosh/"+disk2, "")
		Expect(v.isDevice("/dev/bosh/" + disk1)).To(BeTrue())
		Expect(v.isDevice("/dev/bosh/" + disk2)).To(BeFalse())
		Expect(v.isDevice("/dev/bosh/none")).To(BeFalse())
	})
})
