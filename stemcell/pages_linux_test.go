package stemcell

import (
	"fmt"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// fileMemory is how much of files this process has in memory, in KiB.
func fileMemory() int {
	GinkgoHelper()
	status, err := os.ReadFile("/proc/self/status")
	Expect(err).NotTo(HaveOccurred())
	_, after, _ := strings.Cut(string(status), "RssFile:")
	var kib int
	_, err = fmt.Sscan(after, &kib)
	Expect(err).NotTo(HaveOccurred())
	return kib
}

var _ = Describe("The pages that starting has read", func() {
	It("are given back, and the program goes on", func() {
		previous := fileMemory()
		releaseStartPages()
		Expect(fileMemory()).To(BeNumerically("<", previous*3/4))
	})
})
