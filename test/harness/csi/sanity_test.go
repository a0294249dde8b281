//go:build e2e

package csi_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/csi/driver"
	"bosh-kubernetes-cpi/test/harness/csi/store"
)

func TestCSI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "CSI test driver")
}

// csi-sanity is the conformance test of kubernetes-csi for the CSI spec.
var _ = Describe("csi-sanity", Ordered, func() {
	for _, access := range []string{"mount", "block"} {
		Context("with "+access+" volumes", func() {
			config := sanity.NewTestConfig()
			config.TestVolumeAccessType = access
			config.TestVolumeSize = 64 << 20
			config.TestVolumeExpandSize = 128 << 20
			config.TestVolumeMutableParameters = map[string]string{driver.IOPSParameter: "3000"}
			config.IdempotentCount = 3
			BeforeEach(func() {
				dir := GinkgoT().TempDir()
				config.Address = "unix://" + filepath.Join(dir, "csi.sock")
				config.TargetPath, config.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
				DeferCleanup(serve(dir))
			})
			sanity.GinkgoTest(&config)
		})
	}
})

// serve runs a driver with all services until stop is called.
func serve(dir string) (stop func()) {
	GinkgoHelper()
	opened, err := store.Open(filepath.Join(dir, "store"))
	Expect(err).NotTo(HaveOccurred())
	d, err := driver.New(opened, driver.Options{Controller: true, Node: "node-1", Log: slog.New(slog.DiscardHandler)})
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Serve(ctx, filepath.Join(dir, "csi.sock")) }()
	return func() {
		cancel()
		Eventually(done, "2m").Should(Receive(BeNil()))
	}
}
