// Package integration tests the CPI's program with a real API server, etcd, controller manager and scheduler. kwok simulates the nodes, and
// a provisioner simulates volumes that have no storage.
package integration

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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/embedded"
	"bosh-kubernetes-cpi/test/harness/simulated"
)

func TestIntegration(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	EnforceDefaultTimeoutsWhenUsingContexts() // a spec without a limit could block all others
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	RunSpecs(t, "integration")
}

// long is the priority of specs that take 20 seconds or more, mostly waiting. They start first, because at the end they would run alone.
const long = SpecPriority(1)

// Each Ginkgo process has separate clients and a separate proxy. All processes share the rest.
var (
	sharedDir     string
	plane         *embedded.ControlPlane // run by the first process; the other processes know its directory
	kwok          embedded.Process       // set in the first process only
	cluster       kubernetes.Interface
	dynamicClient dynamic.Interface
	proxy         *apiproxy.Proxy
	cpiPath       string
)

// The first process starts the shared parts, and passes the path of the shared directory to the others.
var _ = SynchronizedBeforeSuite(func(ctx context.Context) []byte {
	shared := GinkgoT().TempDir()
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(shared, "cpi"), "bosh-kubernetes-cpi/cmd/cpi")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))

	plane, err = embedded.NewTestControlPlane(filepath.Join(shared, "control-plane"))
	Expect(err).NotTo(HaveOccurred())
	admissionConfig := filepath.Join(shared, "admission.yaml")
	Expect(os.WriteFile(admissionConfig, []byte(limitedPriorityClasses), 0o600)).To(Succeed())
	plane.APIServerFlags = []string{"--admission-control-config-file=" + admissionConfig}
	DeferCleanup(func() { Expect(plane.Stop()).To(Succeed()) })
	Expect(plane.Start(ctx)).To(Succeed())
	initClients(shared)

	kwok, err = simulated.StartNodes(plane)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(kwok.Stop()).To(Succeed()) })

	Expect(plane.Apply(ctx, nodeManifests)).To(Succeed())
	Expect(plane.Apply(ctx, simulated.StorageResources)).To(Succeed())
	Expect(plane.Apply(ctx, readRepoFile("manifests/admission-policy.yaml"))).To(Succeed())
	_, err = plane.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
	Expect(err).NotTo(HaveOccurred())
	serveCtx, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	go simulated.ServeStorage(serveCtx, cluster, dynamicClient)
	go simulated.TerminatePods(serveCtx, cluster)
	go simulated.RestartVMs(serveCtx, cluster)
	Eventually(func(g Gomega) {
		nodes, err := cluster.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		for _, node := range nodes.Items {
			g.Expect(node.Status.Conditions).To(ContainElement(And(
				HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))), node.Name)
		}
	}).Should(Succeed(), kwok.LastLines)
	return []byte(shared)
}, func(shared []byte) {
	initClients(string(shared))
	var err error
	proxy, err = apiproxy.NewStrict(plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Close)
	DeferCleanup(reportPermissions)
}, NodeTimeout(5*time.Minute))

// initClients creates the clients of this process for the control plane in the shared directory.
func initClients(shared string) {
	GinkgoHelper()
	sharedDir, cpiPath = shared, filepath.Join(shared, "cpi")
	if plane == nil {
		plane = &embedded.ControlPlane{Dir: filepath.Join(shared, "control-plane")}
	}
	config, client, err := plane.AdminClient()
	Expect(err).NotTo(HaveOccurred())
	cluster = client
	dynamicClient, err = dynamic.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
}

// limitedPriorityClasses configures the API server as that of GKE: it admits Pods with a system PriorityClass only in namespaces with a
// ResourceQuota for it.
const limitedPriorityClasses = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes:
      - {scopeName: PriorityClass, operator: In, values: [system-node-critical, system-cluster-critical]}
`

const nodeManifests = `
apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {kubernetes.io/hostname: node-a, kubernetes.io/os: linux, kubernetes.io/arch: amd64, topology.kubernetes.io/zone: a, test/name: node-a}}
---
apiVersion: v1
kind: Node
metadata: {name: node-b, labels: {kubernetes.io/hostname: node-b, kubernetes.io/os: linux, kubernetes.io/arch: arm64, topology.kubernetes.io/zone: b, test/name: node-b}}
`
