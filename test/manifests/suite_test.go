// Package manifests tests the files in manifests/ with the real BOSH CLI, with ERB for the job's templates, and with the CPI. The CPI
// uses a real API server with nodes simulated by kwok.
package manifests

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"bosh-kubernetes-cpi/test/harness/embedded"
	"bosh-kubernetes-cpi/test/harness/simulated"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

func TestManifests(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	RunSpecs(t, "manifests")
}

// Locations of the tested files and of the fixtures.
const (
	repositoryRoot = "../.."
	manifestsDir   = repositoryRoot + "/manifests"
	fixturesDir    = "testdata"
	jobDir         = repositoryRoot + "/jobs/kubernetes_cpi"
)

// namespace is the namespace in manifests/rbac.yaml.
const namespace = "bosh"

var (
	suiteDir   string // directory of the suite's files
	program    string // path of the CPI
	nodeImage  string // directory of the image of bosh-node
	plane      *embedded.ControlPlane
	cluster    kubernetes.Interface
	kubeconfig string // kubeconfig of the service account in manifests/rbac.yaml
)

var _ = BeforeSuite(func(ctx context.Context) {
	suiteDir = GinkgoT().TempDir()
	buildProgram(ctx)
	generateCredentials(ctx)
	createReleases(ctx)
	startCluster(ctx)
}, NodeTimeout(10*time.Minute))

// buildProgram builds the CPI, and an image of bosh-node next to it.
func buildProgram(ctx context.Context) {
	GinkgoHelper()
	nodeImage, _ = stemcells.NodeImage(suiteDir, "ghcr.test/bosh-node")
	program = filepath.Join(suiteDir, "bin", "cpi")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "bosh-kubernetes-cpi/cmd/cpi")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
}

// startCluster starts a control plane with three simulated nodes, and grants the CPI the documented permissions.
func startCluster(ctx context.Context) {
	GinkgoHelper()
	var err error
	plane, err = embedded.NewTestControlPlane(filepath.Join(suiteDir, "control-plane"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(plane.Stop()).To(Succeed()) })
	Expect(plane.Start(ctx)).To(Succeed())
	kwok, err := simulated.StartNodes(plane)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(kwok.Stop()).To(Succeed()) })
	_, cluster, err = plane.AdminClient()
	Expect(err).NotTo(HaveOccurred())

	Expect(plane.Apply(ctx, nodeManifests)).To(Succeed())
	applyRBAC(ctx)
	Eventually(func() error { // the controller manager creates it; Pods are not admitted without it
		_, err := cluster.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	}).WithContext(ctx).Should(Succeed())
	Eventually(func() (corev1.ResourceList, error) { // the controller manager counts Pods; attachment Pods are not admitted before
		quota, err := cluster.CoreV1().ResourceQuotas(namespace).Get(ctx, "bosh-attachments", metav1.GetOptions{})
		return quota.Status.Used, err
	}).WithContext(ctx).ShouldNot(BeEmpty())
}

// applyRBAC runs the commands of an administrator in docs/guides/install.md.
func applyRBAC(ctx context.Context) {
	GinkgoHelper()
	r := newDocReader()
	r.run(ctx, "", codeBlocks(installPage, "1. Create the namespace and permissions", "sh")...)
	output := r.run(ctx, "", codeBlocks(installPage, "2. Create a kubeconfig", "sh")...)
	Expect(output).To(HaveSuffix("yes\n"))
	content, err := os.ReadFile(filepath.Join(r.dir, "bosh-cpi.kubeconfig"))
	Expect(err).NotTo(HaveOccurred())
	kubeconfig = string(content)
}

const nodeManifests = `
apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {kubernetes.io/hostname: node-a, kubernetes.io/os: linux, topology.kubernetes.io/zone: zone-a}}
---
apiVersion: v1
kind: Node
metadata: {name: node-b, labels: {kubernetes.io/hostname: node-b, kubernetes.io/os: linux, topology.kubernetes.io/zone: zone-b}}
---
apiVersion: v1
kind: Node
metadata: {name: node-c, labels: {kubernetes.io/hostname: node-c, kubernetes.io/os: linux, topology.kubernetes.io/zone: zone-c}}
`

// emptyNamespace deletes the objects created by the tests, without grace periods.
func emptyNamespace(ctx context.Context) {
	GinkgoHelper()
	_, err := plane.Kubectl(ctx, "delete", "--namespace", namespace, "--all", "--force", "--grace-period=0",
		"pods,services,persistentvolumeclaims,poddisruptionbudgets")
	Expect(err).NotTo(HaveOccurred())
}
