package main_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"bosh-kubernetes-cpi/test/harness/director"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

func TestKubectlBosh(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	RunSpecs(t, "kubectl-bosh")
}

// Shared by all tests: the programs, a real API server, and kwok's kubelet, which forwards streams as configured by kwokConfig.
var (
	program, cpi string
	dir          string
	controlPlane *embedded.ControlPlane
	cluster      kubernetes.Interface
	server       *echoServer
)

var _ = BeforeSuite(func(ctx SpecContext) {
	for name, into := range map[string]*string{"kubectl-bosh": &program, "cpi": &cpi} {
		built, err := gexec.BuildWithEnvironment("bosh-kubernetes-cpi/cmd/"+name, []string{"CGO_ENABLED=0"},
			"-ldflags", "-X main.publishedNodeImage="+director.NodeImage)
		Expect(err).NotTo(HaveOccurred())
		*into = built
	}
	DeferCleanup(gexec.CleanupBuildArtifacts)
	dir = GinkgoT().TempDir()
	server = newEchoServer()

	var err error
	controlPlane, err = embedded.NewTestControlPlane(filepath.Join(dir, "control-plane"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return controlPlane.Stop() })
	Expect(controlPlane.Start(ctx)).To(Succeed())
	_, cluster, err = controlPlane.AdminClient()
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "default",
		Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}, Provisioner: "example.com/none"}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	startNode(ctx)
	suiteCtx, stop := context.WithCancel(context.Background())
	DeferCleanup(stop)
	go removeDeletedPods(suiteCtx)
}, NodeTimeout(5*time.Minute))

// monit is a script in place of the monit of VMs.
const monit = `#!/bin/sh
echo "The Monit daemon 5.2.5 uptime: 2m"
echo
echo "Process 'nats'                      running"
echo "Process 'blobstore_nginx'           Execution failed"
echo "System 'system_localhost'           running"
`

// startNode starts kwok and a node with a kubelet that serves requests.
func startNode(ctx context.Context) {
	GinkgoHelper()
	port, err := embedded.FreePort()
	Expect(err).NotTo(HaveOccurred())
	kubeletConfig := filepath.Join(dir, "kubelet.yaml")
	Expect(os.WriteFile(kubeletConfig, []byte(kwokConfig()), 0o600)).To(Succeed())
	pki := filepath.Join(controlPlane.Dir, "pki")
	programs := filepath.Join(dir, "programs") // of VMs
	Expect(os.Mkdir(programs, 0o700)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(programs, "monit"), []byte(monit), 0o700)).To(Succeed())
	kwok := embedded.Process{Name: "kwok", Dir: dir, Child: true, Env: []string{"PATH=" + programs + ":" + os.Getenv("PATH")}, Args: []string{
		"kwok", "--kubeconfig", controlPlane.Kubeconfig("admin"), "--manage-all-nodes",
		"--config", "../../test/harness/simulated/kwok.yaml", "--config", kubeletConfig,
		"--node-ip", "127.0.0.1", "--node-port", strconv.Itoa(port), "--server-address", "127.0.0.1:" + strconv.Itoa(port),
		"--tls-cert-file", filepath.Join(pki, "apiserver.crt"), "--tls-private-key-file", filepath.Join(pki, "apiserver.key"),
		"--cidr", "10.1.0.0/16", "--node-lease-duration-seconds", "40"}}
	Expect(kwok.Start()).To(Succeed())
	DeferCleanup(func() { Expect(kwok.Stop()).To(Succeed()) })
	Expect(controlPlane.Apply(ctx, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"node-a","labels":`+
		`{"kubernetes.io/hostname":"node-a","kubernetes.io/os":"linux","kubernetes.io/arch":"amd64"}}}`)).To(Succeed())
	Eventually(func(g Gomega) {
		node, err := cluster.CoreV1().Nodes().Get(ctx, "node-a", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(node.Status.Conditions).To(ContainElement(And(
			HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
	}).WithContext(ctx).Should(Succeed(), kwok.LastLines)
}

// removeDeletedPods completes the deletion of Pods like a kubelet, except Pods with the annotation test/stays.
func removeDeletedPods(ctx context.Context) {
	defer GinkgoRecover()
	pods, err := cluster.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	defer pods.Stop()
	for event := range pods.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if ok && event.Type == watch.Modified && pod.DeletionTimestamp != nil && pod.Annotations["test/stays"] == "" {
			_ = cluster.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
				GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
			})
		}
	}
}
