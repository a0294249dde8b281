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

	"bosh-kubernetes-cpi/test/embedded"
)

func TestShim(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "cni-shim")
}

// What all tests share: the real program, a real delegate, and a real API server.
var (
	program, plugins string
	plane            *embedded.ControlPlane
	account          string // a folder like the one with a service account's token in a Pod
)

const namespace = "bosh"

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	program, err = gexec.BuildWithEnvironment("bosh-kubernetes-cpi/cmd/cni-shim", []string{"CGO_ENABLED=0"})
	Expect(err).NotTo(HaveOccurred())
	delegate, err := gexec.BuildWithEnvironment("bosh-kubernetes-cpi/cmd/cni-shim/testdelegate", []string{"CGO_ENABLED=0"})
	Expect(err).NotTo(HaveOccurred())
	plugins = filepath.Dir(delegate)
	DeferCleanup(gexec.CleanupBuildArtifacts)

	plane, err = embedded.NewTestControlPlane(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return plane.Stop() })
	Expect(plane.Start(ctx)).To(Succeed())
	Expect(plane.Apply(ctx, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+namespace+`"}}`)).To(Succeed())
	Expect(plane.Apply(ctx, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default","namespace":"`+namespace+`"}}`)).To(Succeed())
	// Pods on a node that is not there are taken away after a while, and the tokens that are bound to them end.
	Expect(plane.Apply(ctx, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"nowhere"}}`)).To(Succeed())
	applyDaemonSet(ctx)
	account = GinkgoT().TempDir()
	writeAccount(ctx)
}, NodeTimeout(3*time.Minute))

// writeAccount puts a token of the service account as it is now into its folder.
func writeAccount(ctx context.Context) {
	for file, content := range map[string]string{"token": accountToken(ctx), "ca.crt": caOf(plane)} {
		Expect(os.WriteFile(filepath.Join(account, file), []byte(content), 0o600)).To(Succeed())
	}
}

// applyDaemonSet applies the manifest that operators apply, so that its rights are those of the tests.
func applyDaemonSet(ctx context.Context) {
	manifest, err := os.ReadFile("../../docs/cni-shim/daemonset.yaml")
	Expect(err).NotTo(HaveOccurred())
	Expect(plane.Apply(ctx, string(manifest))).To(Succeed())
}

func accountToken(ctx context.Context) string {
	token, err := plane.Kubectl(ctx, "create", "token", "bosh-cni-shim", "--namespace", "bosh-cni-shim")
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(token)
}

func caOf(plane *embedded.ControlPlane) string {
	authority, err := os.ReadFile(filepath.Join(plane.Dir, "pki", "ca.crt"))
	Expect(err).NotTo(HaveOccurred())
	return string(authority)
}

// createPod makes a Pod of the API that runs nowhere, and returns its UID.
func createPod(ctx context.Context, name, annotations string) string {
	Expect(plane.Apply(ctx, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"`+name+`","namespace":"`+namespace+`","annotations":`+annotations+`},
		"spec":{"nodeName":"nowhere","containers":[{"name":"c","image":"none"}]}}`)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		_, err := plane.Kubectl(ctx, "delete", "pod", name, "--namespace", namespace, "--force", "--grace-period=0", "--ignore-not-found")
		Expect(err).NotTo(HaveOccurred())
	})
	uid, err := plane.Kubectl(ctx, "get", "pod", name, "--namespace", namespace, "-o", "jsonpath={.metadata.uid}")
	Expect(err).NotTo(HaveOccurred())
	return uid
}
