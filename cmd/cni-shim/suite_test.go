package main_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

func TestShim(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	RunSpecs(t, "cni-shim")
}

// Shared by all tests: the built program, a real delegate, and a real API server.
var (
	program, pluginDir string
	controlPlane       *embedded.ControlPlane
	accountDir         string // directory with token and ca.crt, as mounted in a Pod
)

const namespace = "bosh"

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	program, err = gexec.BuildWithEnvironment("bosh-kubernetes-cpi/cmd/cni-shim", []string{"CGO_ENABLED=0"})
	Expect(err).NotTo(HaveOccurred())
	delegate, err := gexec.BuildWithEnvironment("bosh-kubernetes-cpi/cmd/cni-shim/testdelegate", []string{"CGO_ENABLED=0"})
	Expect(err).NotTo(HaveOccurred())
	pluginDir = filepath.Dir(delegate)
	DeferCleanup(gexec.CleanupBuildArtifacts)

	controlPlane, err = embedded.NewTestControlPlane(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return controlPlane.Stop() })
	Expect(controlPlane.Start(ctx)).To(Succeed())
	Expect(controlPlane.Apply(ctx, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+namespace+`"}}`)).To(Succeed())
	Expect(controlPlane.Apply(ctx, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default","namespace":"`+namespace+`"}}`)).To(Succeed())
	// Without this Node, the controllers would delete its Pods after a while, and the tokens bound to the Pods would expire.
	Expect(controlPlane.Apply(ctx, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"nowhere"}}`)).To(Succeed())
	applyDaemonSet(ctx)
	accountDir = GinkgoT().TempDir()
	writeAccountFiles(ctx)
}, NodeTimeout(3*time.Minute))

// writeAccountFiles writes a new token of the service account to accountDir.
func writeAccountFiles(ctx context.Context) {
	for file, content := range map[string]string{"token": accountToken(ctx), "ca.crt": readCA(controlPlane)} {
		Expect(os.WriteFile(filepath.Join(accountDir, file), []byte(content), 0o600)).To(Succeed())
	}
}

// applyDaemonSet applies the documented manifest, so that the tests use the documented permissions.
func applyDaemonSet(ctx context.Context) {
	manifest, err := os.ReadFile("../../manifests/cni-shim/daemonset.yaml")
	Expect(err).NotTo(HaveOccurred())
	Expect(controlPlane.Apply(ctx, string(manifest))).To(Succeed())
}

func accountToken(ctx context.Context) string {
	token, err := controlPlane.Kubectl(ctx, "create", "token", "bosh-cni-shim", "--namespace", "bosh-cni-shim")
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(token)
}

func readCA(plane *embedded.ControlPlane) string {
	caData, err := os.ReadFile(filepath.Join(plane.Dir, "pki", "ca.crt"))
	Expect(err).NotTo(HaveOccurred())
	return string(caData)
}

// createPod creates a Pod that no node runs, and returns its UID.
func createPod(ctx context.Context, name, annotations string) string {
	Expect(controlPlane.Apply(ctx, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"`+name+`","namespace":"`+namespace+`","annotations":`+annotations+`},
		"spec":{"nodeName":"nowhere","containers":[{"name":"c","image":"none"}]}}`)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		_, err := controlPlane.Kubectl(ctx, "delete", "pod", name, "--namespace", namespace, "--force", "--grace-period=0", "--ignore-not-found")
		Expect(err).NotTo(HaveOccurred())
	})
	uid, err := controlPlane.Kubectl(ctx, "get", "pod", name, "--namespace", namespace, "-o", "jsonpath={.metadata.uid}")
	Expect(err).NotTo(HaveOccurred())
	return uid
}
