package main

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestCPI(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	RunSpecs(t, "cmd/cpi")
}

var _ = Describe("onCallerExit", func() {
	// watchCaller returns a channel that is closed when onCallerExit calls its callback.
	watchCaller := func(parent int, output *os.File) <-chan struct{} {
		called := make(chan struct{})
		onCallerExit(parent, output, func() { close(called) })
		return called
	}

	It("calls back once the reader closes the pipe, and not before", func() {
		reader, writer, err := os.Pipe()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(writer.Close)
		called := watchCaller(os.Getppid(), writer)
		Consistently(called, 3*callerPollInterval).ShouldNot(BeClosed())
		Expect(reader.Close()).To(Succeed())
		Eventually(called, 10*callerPollInterval).Should(BeClosed())
	})

	It("calls back when the process is reparented", func() {
		Eventually(watchCaller(os.Getppid()+1, os.Stdout), 10*callerPollInterval).Should(BeClosed())
	})
})

var _ = Describe("outputClosed", func() {
	It("reports false for a regular file", func() {
		file, err := os.Create(GinkgoT().TempDir() + "/response")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(file.Close)
		Expect(outputClosed(file)).To(BeFalse())
	})
})
