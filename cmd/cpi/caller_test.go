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

var _ = Describe("onCallerExit", func() {
	// watchCaller returns a channel that is closed when onCallerExit calls its callback.
	watchCaller := func(parent int, output *os.File) <-chan struct{} {
		gone := make(chan struct{})
		onCallerExit(parent, output, func() { close(gone) })
		return gone
	}

	It("calls back once the reader closes the pipe, and not before", func() {
		reader, writer, err := os.Pipe()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(writer.Close)
		gone := watchCaller(os.Getppid(), writer)
		Consistently(gone, 3*callerPollInterval).ShouldNot(BeClosed())
		Expect(reader.Close()).To(Succeed())
		Eventually(gone, 10*callerPollInterval).Should(BeClosed())
	})

	It("calls back when the process has another parent", func() {
		Eventually(watchCaller(os.Getppid()+1, os.Stdout), 10*callerPollInterval).Should(BeClosed())
	})

	It("ignores an output that is a file", func() {
		file, err := os.Create(GinkgoT().TempDir() + "/answer")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(file.Close)
		Expect(outputClosed(file)).To(BeFalse())
	})
})
