package store_test

import (
	"os"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"bosh-kubernetes-cpi/test/harness/csi/store"
)

func openStore(dir string) *store.Store {
	GinkgoHelper()
	opened, err := store.Open(dir)
	Expect(err).NotTo(HaveOccurred())
	return opened
}

func beEmptyDirectory() types.GomegaMatcher {
	return WithTransform(os.ReadDir, BeEmpty())
}

func size(path string) int64 {
	GinkgoHelper()
	info, err := os.Stat(path)
	Expect(err).NotTo(HaveOccurred())
	return info.Size()
}

// allocatedBytes returns the allocated size of the file.
func allocatedBytes(path string) int64 {
	GinkgoHelper()
	info, err := os.Stat(path)
	Expect(err).NotTo(HaveOccurred())
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}
