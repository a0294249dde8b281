package main

import (
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestCPI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "cmd/cpi")
}

var _ = Describe("A caller", func() {
	// watched is closed once the caller is taken to be gone.
	watched := func(parent int, output *os.File) <-chan struct{} {
		gone := make(chan struct{})
		whenCallerGoes(parent, output, func() { close(gone) })
		return gone
	}

	It("is there as long as it reads, and gone once it has closed its end", func() {
		read, written, err := os.Pipe()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(written.Close)
		gone := watched(os.Getppid(), written)
		Consistently(gone, 3*callerInterval).ShouldNot(BeClosed())
		Expect(read.Close()).To(Succeed())
		Eventually(gone, 10*callerInterval).Should(BeClosed())
	})

	It("is gone when it has ended, and this process has another parent", func() {
		Eventually(watched(os.Getppid()+1, os.Stdout), 10*callerInterval).Should(BeClosed())
	})

	It("is not looked for in a file", func() {
		file, err := os.Create(GinkgoT().TempDir() + "/answer")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(file.Close)
		Expect(unread(file)).To(BeFalse())
	})
})
