//go:build e2e

package e2e

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newUpClient returns a remoteClient for `kubectl bosh up`, which also creates the namespace.
func newUpClient(ctx context.Context, name string) *remoteClient {
	GinkgoHelper()
	l := newRemoteClient(ctx)
	l.namespace += "-" + name
	l.startProxy()
	return l
}

// kubectlBosh runs kubectl bosh, which must succeed, and returns its output.
func (l *remoteClient) kubectlBosh(ctx context.Context, args ...string) string {
	GinkgoHelper()
	program, err := filepath.Abs("../../bin/kubectl-bosh")
	Expect(err).NotTo(HaveOccurred())
	out, err := l.run(ctx, program, args...)
	GinkgoWriter.Println(out)
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

// up runs `kubectl bosh up` with a manifest in the structure of bosh-deployment's, and the flags in more.
func (l *remoteClient) up(ctx context.Context, more ...string) string {
	GinkgoHelper()
	return l.kubectlBosh(ctx, append([]string{"up", "--namespace", l.namespace, "--dir", filepath.Join(l.dir, "env"), "--yes",
		"--manifest", "../demo/director.yml", "--ops-file", "../demo/small.yml",
		"--release", filepath.Join(l.dir, "cpi.tgz"), "--stemcell", os.Getenv("E2E_STEMCELL"),
		"--var", "demo_release=" + filepath.Join(l.dir, "demo.tgz"), "--var", "disk_mib=256", "--var", "disk_cloud_properties={}"}, more...)...)
}

func (l *remoteClient) down(ctx context.Context) {
	GinkgoHelper()
	l.kubectlBosh(ctx, "down", "--dir", filepath.Join(l.dir, "env"), "--yes")
	Eventually(func() bool {
		_, err := l.env.cluster.CoreV1().Namespaces().Get(ctx, l.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithContext(ctx).Should(BeTrue(), "the namespace is deleted with everything in it")
	remaining, err := l.env.embedded.ControlPlane.Kubectl(ctx, "get", "clusterroles,clusterrolebindings,persistentvolumes", "-o", "name")
	Expect(err).NotTo(HaveOccurred())
	Expect(remaining).NotTo(ContainSubstring(l.namespace))
}

var _ = Describe("kubectl bosh up, with only a kubeconfig and no route to Pods,", Label("remote-access", "extended"), func() {
	for _, testCase := range []struct{ network, file string }{{"static", "in-cluster.yml"}, {"service", "service.yml"}} {
		Context("with the address of "+map[string]string{"static": "the Pod", "service": "a Service"}[testCase.network], Ordered, func() {
			var (
				l     *remoteClient
				first string
				more  []string
			)
			BeforeAll(func(ctx context.Context) {
				l = newUpClient(ctx, testCase.network)
				if more = []string{"--address", l.address}; testCase.network == "service" {
					more = []string{"--network", "service", "--ops-file", "testdata/director-port.yml"}
				}
			}, NodeTimeout(longTest))

			It("creates a VM with a job that answers through the proxy", func(ctx context.Context) {
				out := l.up(ctx, append(more, "--var", "greeting=good morning")...)
				Expect(out).To(MatchRegexp("network +" + testCase.network + ": "))
				Expect(filepath.Join(l.dir, "env", "ops", testCase.file)).To(BeAnExistingFile())
				first = l.vmPodName(ctx)
				pod, err := l.env.cluster.CoreV1().Pods(l.namespace).Get(ctx, first, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(pod.Spec.ServiceAccountName).To(Equal("bosh-cpi"))
				if testCase.network == "service" {
					service, err := l.env.cluster.CoreV1().Services(l.namespace).Get(ctx, "bosh-director", metav1.GetOptions{})
					Expect(err).NotTo(HaveOccurred())
					l.address = service.Spec.ClusterIP
				}
				_, err = l.dial(&net.Dialer{Timeout: time.Second}, "7000")
				Expect(err).To(HaveOccurred(), "invalid test: the VM can be reached without the proxy")
				Eventually(l.readJobResponse).WithContext(ctx).Should(ContainSubstring("good morning"))
			}, NodeTimeout(2*longTest))

			It("updates the job when a variable changes, and the new VM has the same address", func(ctx context.Context) {
				l.up(ctx, "--var", "greeting=good evening")
				Expect(l.vmPodName(ctx)).NotTo(Equal(first))
				Eventually(l.readJobResponse).WithContext(ctx).Should(And(ContainSubstring("good evening"), ContainSubstring("counted")))
			}, NodeTimeout(2*longTest))

			It("leaves no objects after kubectl bosh down", func(ctx context.Context) { l.down(ctx) }, NodeTimeout(longTest))
		})
	}
})
