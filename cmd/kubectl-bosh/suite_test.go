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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"bosh-kubernetes-cpi/test/embedded"
)

func TestKubectlBosh(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	RunSpecs(t, "kubectl-bosh")
}

// What all tests share: the programs, a real API server, and a kubelet of kwok's, whose streams are real and lead to
// what kubelet() names.
var (
	program, cpi string
	dir          string
	plane        *embedded.ControlPlane
	cluster      kubernetes.Interface
	server       *inMachine
)

var _ = BeforeSuite(func(ctx SpecContext) {
	for name, into := range map[string]*string{"kubectl-bosh": &program, "cpi": &cpi} {
		built, err := gexec.BuildWithEnvironment("bosh-kubernetes-cpi/cmd/"+name, []string{"CGO_ENABLED=0"})
		Expect(err).NotTo(HaveOccurred())
		*into = built
	}
	DeferCleanup(gexec.CleanupBuildArtifacts)
	dir = GinkgoT().TempDir()
	server = newInMachine()

	var err error
	plane, err = embedded.NewTestControlPlane(filepath.Join(dir, "control-plane"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return plane.Stop() })
	Expect(plane.Start(ctx)).To(Succeed())
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	config.QPS = -1
	cluster, err = kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	startNode(ctx)
	ending, stop := context.WithCancel(context.Background())
	DeferCleanup(stop)
	go endPods(ending)
}, NodeTimeout(5*time.Minute))

// startNode starts kwok with a node whose kubelet answers.
func startNode(ctx context.Context) {
	GinkgoHelper()
	port, err := embedded.FreePort()
	Expect(err).NotTo(HaveOccurred())
	forwards := filepath.Join(dir, "kubelet.yaml")
	Expect(os.WriteFile(forwards, []byte(kubelet()), 0o600)).To(Succeed())
	pki := filepath.Join(plane.Dir, "pki")
	kwok := embedded.Process{Name: "kwok", Dir: dir, Child: true, Args: []string{
		"kwok", "--kubeconfig", plane.Kubeconfig("admin"), "--manage-all-nodes",
		"--config", "../../test/simulated/kwok.yaml", "--config", forwards,
		"--node-ip", "127.0.0.1", "--node-port", strconv.Itoa(port), "--server-address", "127.0.0.1:" + strconv.Itoa(port),
		"--tls-cert-file", filepath.Join(pki, "apiserver.crt"), "--tls-private-key-file", filepath.Join(pki, "apiserver.key"),
		"--cidr", "10.1.0.0/16", "--node-lease-duration-seconds", "40"}}
	Expect(kwok.Start()).To(Succeed())
	DeferCleanup(func() { Expect(kwok.Stop()).To(Succeed()) })
	Expect(plane.Apply(ctx, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"node-a","labels":`+
		`{"kubernetes.io/os":"linux","kubernetes.io/arch":"amd64"}}}`)).To(Succeed())
	Eventually(func(g Gomega) {
		node, err := cluster.CoreV1().Nodes().Get(ctx, "node-a", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(node.Status.Conditions).To(ContainElement(And(
			HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
	}).WithContext(ctx).Should(Succeed(), kwok.LastLines)
}

// endPods takes deleted Pods away, as a kubelet does, unless they are annotated test/stays.
func endPods(ctx context.Context) {
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
