package device

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestDevice(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Devices of the CSI driver for tests")
}

var _ = Describe("mountinfo", func() {
	It("is read with optional fields, escaped characters and read-only mounts", func() {
		Expect(parseMounts(`22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 22 7:3 / /var/lib/a\040b rw,relatime shared:7 master:3 - xfs /dev/loop3 rw,nouuid
32 22 0:5 /loop3 /publish/pod\134x ro - devtmpfs devtmpfs rw,size=1k
not a line of a mount
`)).To(Equal([]MountEntry{
			{Number: "254:0", Root: "/", Point: "/", Type: "ext4"},
			{Number: "7:3", Root: "/", Point: "/var/lib/a b", Type: "xfs"},
			{Number: "0:5", Root: "/loop3", Point: `/publish/pod\x`, Type: "devtmpfs", ReadOnly: true},
		}))
	})

	It("tells what is mounted at a path in this process's namespace", func() {
		mounted, is, err := MountAt("/proc")
		Expect(err).NotTo(HaveOccurred())
		Expect(is).To(BeTrue())
		Expect(mounted.Type).To(Equal("proc"))
		_, is, err = MountAt("/proc/no-such-mount")
		Expect(err).NotTo(HaveOccurred())
		Expect(is).To(BeFalse())
	})
})

var _ = Describe("Number", func() {
	It("refuses what is no block device", func() {
		_, err := Number("/dev/null")
		Expect(err).To(MatchError(ContainSubstring("no block device")))
	})
})
