package main_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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
	cluster            kubernetes.Interface
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
	_, cluster, err = controlPlane.AdminClient()
	Expect(err).NotTo(HaveOccurred())
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
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{NodeName: "nowhere", Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	Expect(json.Unmarshal([]byte(annotations), &pod.Annotations)).To(Succeed())
	pods := cluster.CoreV1().Pods(namespace)
	pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		err := pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		Expect(err).To(Or(BeNil(), Satisfy(apierrors.IsNotFound)))
	})
	return string(pod.UID)
}
