package device

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestDevice(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "CSI test driver: devices")
}

var _ = Describe("mountinfo", func() {
	It("is parsed with optional fields and escaped characters", func() {
		Expect(parseMounts(`22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 22 7:3 / /var/lib/a\040b rw,relatime shared:7 master:3 - xfs /dev/loop3 rw,nouuid
32 22 0:5 /loop3 /publish/pod\134x ro - devtmpfs devtmpfs rw,size=1k
not a mountinfo line
`)).To(Equal([]MountEntry{
			{Number: "254:0", Point: "/", Type: "ext4"},
			{Number: "7:3", Point: "/var/lib/a b", Type: "xfs"},
			{Number: "0:5", Point: `/publish/pod\x`, Type: "devtmpfs"},
		}))
	})

	It("contains the mount at a path", func() {
		mounted, found, err := MountAt("/proc")
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(BeTrue())
		Expect(mounted.Type).To(Equal("proc"))
		_, found, err = MountAt("/proc/no-such-mount")
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(BeFalse())
	})
})

var _ = Describe("Number", func() {
	It("fails for a file that is not a block device", func() {
		_, err := Number("/dev/null")
		Expect(err).To(MatchError(ContainSubstring("not a block device")))
	})
})
