package stemcell

import (
	"fmt"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// fileMemory returns the resident file mappings of this process, in KiB.
func fileMemory() int {
	GinkgoHelper()
	status, err := os.ReadFile("/proc/self/status")
	Expect(err).NotTo(HaveOccurred())
	_, value, _ := strings.Cut(string(status), "RssFile:")
	var kib int
	_, err = fmt.Sscan(value, &kib)
	Expect(err).NotTo(HaveOccurred())
	return kib
}

var _ = Describe("releaseStartPages", func() {
	It("releases resident pages of the program file", func() {
		previous := fileMemory()
		releaseStartPages()
		Expect(fileMemory()).To(BeNumerically("<", previous*3/4))
	})
})
