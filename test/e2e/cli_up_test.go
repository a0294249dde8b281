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

// newUpClient returns a remoteClient for `kubectl bosh up`. Its namespace does not exist yet.
func newUpClient(ctx context.Context, name string) *remoteClient {
	GinkgoHelper()
	c := newRemoteClient(ctx)
	c.namespace += "-" + name
	DeferCleanup(func(ctx context.Context) {
		_, err := c.env.embedded.ControlPlane.Kubectl(ctx, "delete", "namespace", c.namespace, "--ignore-not-found") // after a failed spec
		Expect(err).NotTo(HaveOccurred())
	})
	c.startProxy()
	return c
}

// kubectlBosh runs kubectl bosh and returns its output. The test fails if the command fails.
func (c *remoteClient) kubectlBosh(ctx context.Context, args ...string) string {
	GinkgoHelper()
	program, err := filepath.Abs("../../bin/kubectl-bosh")
	Expect(err).NotTo(HaveOccurred())
	out, err := c.run(ctx, program, args...)
	GinkgoWriter.Println(out)
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

// up runs `kubectl bosh up` with these flags, and with a manifest that has the structure of bosh-deployment's.
func (c *remoteClient) up(ctx context.Context, flags ...string) string {
	GinkgoHelper()
	return c.kubectlBosh(ctx, append([]string{"up", "--namespace", c.namespace, "--dir", filepath.Join(c.dir, "env"), "--yes",
		"--manifest", "../demo/director.yml", "--ops-file", "../demo/small.yml",
		"--release", filepath.Join(c.dir, "cpi.tgz"), "--stemcell", os.Getenv("E2E_STEMCELL"),
		"--var", "demo_release=" + filepath.Join(c.dir, "demo.tgz"), "--var", "disk_mib=256", "--var", "disk_cloud_properties={}"}, flags...)...)
}

func (c *remoteClient) down(ctx context.Context) {
	GinkgoHelper()
	c.kubectlBosh(ctx, "down", "--dir", filepath.Join(c.dir, "env"), "--yes")
	Eventually(func() bool {
		_, err := c.env.cluster.CoreV1().Namespaces().Get(ctx, c.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithContext(ctx).Should(BeTrue(), "the namespace is deleted with everything in it")
	remaining, err := c.env.embedded.ControlPlane.Kubectl(ctx, "get", "clusterroles,clusterrolebindings,persistentvolumes", "-o", "name")
	Expect(err).NotTo(HaveOccurred())
	Expect(remaining).NotTo(ContainSubstring(c.namespace))
}

var _ = Describe("kubectl bosh up, with only a kubeconfig and no route to Pods,", Label("remote-access", "extended"), func() {
	for _, testCase := range []struct{ network, file string }{{"static", "in-cluster.yml"}, {"service", "service.yml"}} {
		Context("with the address of "+map[string]string{"static": "the Pod", "service": "a Service"}[testCase.network], Ordered, func() {
			var (
				c     *remoteClient
				first string
				flags []string
			)
			BeforeAll(func(ctx context.Context) {
				c = newUpClient(ctx, testCase.network)
				if flags = []string{"--restricted", "--address", c.address}; testCase.network == "service" {
					flags = []string{"--network", "service", "--ops-file", "testdata/director-port.yml"}
				}
			}, NodeTimeout(longTest))

			It("creates a VM with a job that responds through the proxy", func(ctx context.Context) {
				out := c.up(ctx, append(flags, "--var", "greeting=good morning")...)
				Expect(out).To(MatchRegexp("network +" + testCase.network + ": "))
				Expect(filepath.Join(c.dir, "env", "ops", testCase.file)).To(BeAnExistingFile())
				first = c.vmPodName(ctx)
				pod, err := c.env.cluster.CoreV1().Pods(c.namespace).Get(ctx, first, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(pod.Spec.ServiceAccountName).To(Equal("bosh-cpi"))
				if testCase.network == "service" {
					service, err := c.env.cluster.CoreV1().Services(c.namespace).Get(ctx, "bosh-director", metav1.GetOptions{})
					Expect(err).NotTo(HaveOccurred())
					c.address = service.Spec.ClusterIP
				}
				_, err = c.dial(&net.Dialer{Timeout: time.Second}, "7000")
				Expect(err).To(HaveOccurred(), "invalid test: the VM can be reached without the proxy")
				Eventually(c.readJobResponse).WithContext(ctx).Should(ContainSubstring("good morning"))
			}, NodeTimeout(2*longTest))

			It("updates the job when a variable changes, and the new VM has the same address", func(ctx context.Context) {
				c.up(ctx, "--var", "greeting=good evening")
				Expect(c.vmPodName(ctx)).NotTo(Equal(first))
				Eventually(c.readJobResponse).WithContext(ctx).Should(And(ContainSubstring("good evening"), ContainSubstring("counted")))
			}, NodeTimeout(2*longTest))

			It("recreates the VM after its Pod is deleted, with the same address and disk", func(ctx context.Context) {
				lost := c.vmPodName(ctx)
				Expect(c.env.cluster.CoreV1().Pods(c.namespace).Delete(ctx, lost, metav1.DeleteOptions{})).To(Succeed())
				Eventually(func() bool {
					_, err := c.env.cluster.CoreV1().Pods(c.namespace).Get(ctx, lost, metav1.GetOptions{})
					return apierrors.IsNotFound(err)
				}).WithContext(ctx).Should(BeTrue())
				c.up(ctx)
				Expect(c.vmPodName(ctx)).NotTo(Equal(lost))
				Eventually(c.readJobResponse).WithContext(ctx).Should(And(ContainSubstring("good evening"), ContainSubstring("counted")))
			}, NodeTimeout(2*longTest))

			It("leaves no objects after kubectl bosh down", func(ctx context.Context) { c.down(ctx) }, NodeTimeout(longTest))
		})
	}
})
