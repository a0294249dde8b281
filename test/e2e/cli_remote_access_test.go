//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"golang.org/x/net/proxy"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// remoteClient is a network namespace from which only the API server can be reached, but no Pod or node.
type remoteClient struct {
	env          *testEnv
	netns        string
	namespace    string // namespace of the VMs
	dir          string // directory of the input and state of create-env
	address      string // address of the VM
	proxyAddress string // address of the proxy, on the network namespace's loopback interface
}

// newRemoteClient creates the network namespace and the releases of the demo.
func newRemoteClient(ctx context.Context) *remoteClient {
	GinkgoHelper()
	env := newTestEnv(ctx)
	c := &remoteClient{env: env, namespace: env.namespace, netns: fmt.Sprintf("remote-%d", os.Getpid()), address: newAddress()}
	var err error
	c.dir, err = os.MkdirTemp("", "remote-client")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, c.dir)
	for script, tarball := range map[string]string{"scripts/create-release": "cpi.tgz", "test/release/create-release": "demo.tgz"} {
		command := exec.CommandContext(ctx, "../../"+script, filepath.Join(c.dir, tarball))
		images, _, _ := strings.Cut(os.Getenv("E2E_NODE_IMAGE"), "/bosh-node@")
		command.Env = append(os.Environ(), "IMAGES="+images) // from which nodes can pull the image of the release
		out, err := command.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
	}
	// The agent must also listen on the VM's loopback interface, because kubectl port-forward connects to it.
	Expect(os.WriteFile(filepath.Join(c.dir, "listen.yml"), []byte(
		"- {type: replace, path: /cloud_provider/properties/agent/mbus, value: 'https://mbus:((mbus_bootstrap_password))@0.0.0.0:6868'}\n"), 0o600)).To(Succeed())
	c.createNetns(ctx)
	return c
}

func (c *remoteClient) createNetns(ctx context.Context) {
	GinkgoHelper()
	_, err := embedded.Run(ctx, "ip", "netns", "add", c.netns)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		_, err := embedded.Run(ctx, "ip", "netns", "delete", c.netns)
		Expect(err).NotTo(HaveOccurred())
	})
	_, err = c.run(ctx, "ip", "link", "set", "lo", "up")
	Expect(err).NotTo(HaveOccurred())
	listener, err := embedded.ForwardLoopback(c.netns, c.env.embedded.ControlPlane.APIPort)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(listener.Close)
}

// command returns a command that runs in the network namespace.
func (c *remoteClient) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "nsenter", append([]string{"--net=/run/netns/" + c.netns, name}, args...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.env.kubeconfig, "HOME="+c.dir)
	if c.proxyAddress != "" {
		command.Env = append(command.Env, "BOSH_ALL_PROXY=socks5://"+c.proxyAddress)
	}
	return command
}

func (c *remoteClient) run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := c.command(ctx, name, args...).CombinedOutput()
	return string(out), err
}

// startProxy starts `kubectl bosh proxy`, and stops it after the specs.
func (c *remoteClient) startProxy() {
	GinkgoHelper()
	program, err := filepath.Abs("../../bin/kubectl-bosh")
	Expect(err).NotTo(HaveOccurred())
	session, err := gexec.Start(c.command(context.Background(), program, "proxy", "--namespace", c.namespace), GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Eventually(session.Interrupt()).Should(gexec.Exit(0)) })
	Eventually(session.Out).Should(gbytes.Say(`export BOSH_ALL_PROXY=socks5://127\.0\.0\.1:\d+\n`))
	_, c.proxyAddress, _ = strings.Cut(strings.TrimSpace(string(session.Out.Contents())), "socks5://")
}

// bosh runs create-env or delete-env with the demo's manifest, and with this greeting for the job.
func (c *remoteClient) bosh(ctx context.Context, verb, greeting string) string {
	GinkgoHelper()
	path := func(name string) string { return filepath.Join(c.dir, name) }
	out, err := c.run(ctx, "bosh", verb, "../demo/manifest.yml", "--non-interactive", "-o", path("listen.yml"),
		"--state", path("state.json"), "--vars-store", path("vars.yml"),
		"-v", "cpi_release="+path("cpi.tgz"), "-v", "demo_release="+path("demo.tgz"), "-v", "stemcell="+os.Getenv("E2E_STEMCELL"),
		"--var-file", "kubeconfig="+c.env.kubeconfig, "-v", "namespace="+c.env.namespace,
		"-v", "network_range="+embedded.BOSHNetworkPrefix+".128.0/17", "-v", "network_gateway="+embedded.BOSHGateway, "-v", "address="+c.address,
		"-v", "disk_mib=256", "-v", "disk_cloud_properties={}", "-v", "greeting="+greeting)
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

// dial connects to the VM from the network namespace with this dialer.
func (c *remoteClient) dial(dialer proxy.Dialer, port string) (conn net.Conn, err error) {
	err = embedded.InNetworkNamespace(c.netns, func() error {
		conn, err = dialer.Dial("tcp", net.JoinHostPort(c.address, port))
		return err
	})
	return conn, err
}

// readJobResponse returns the response of the VM's job through the proxy.
func (c *remoteClient) readJobResponse() (string, error) {
	dialer, err := proxy.SOCKS5("tcp", c.proxyAddress, nil, proxy.Direct)
	if err != nil {
		return "", err
	}
	conn, err := c.dial(dialer, "7000")
	if err != nil {
		return "", err
	}
	defer conn.Close()
	response, err := io.ReadAll(conn)
	return string(response), err
}

// vmPodName returns the name of the only VM Pod.
func (c *remoteClient) vmPodName(ctx context.Context) string {
	GinkgoHelper()
	pods, err := c.env.cluster.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=vm"})
	Expect(err).NotTo(HaveOccurred())
	Expect(pods.Items).To(HaveLen(1))
	return pods.Items[0].Name
}

var _ = Describe("With only a kubeconfig and kubectl bosh proxy, without a route to Pods,", Label("remote-access", "extended"), Ordered, func() {
	var (
		c     *remoteClient
		first string
	)
	BeforeAll(func(ctx context.Context) {
		c = newRemoteClient(ctx)
		c.startProxy()
	}, NodeTimeout(longTest))

	It("bosh create-env creates a VM, and its job responds", func(ctx context.Context) {
		c.bosh(ctx, "create-env", "good morning")
		first = c.vmPodName(ctx)
		_, err := c.dial(&net.Dialer{Timeout: time.Second}, "7000")
		Expect(err).To(HaveOccurred(), "invalid test: the VM can be reached without the proxy")
		Eventually(c.readJobResponse).WithContext(ctx).Should(ContainSubstring("good morning"))
	}, NodeTimeout(2*longTest))

	It("bosh create-env with a change recreates the VM, and the same proxy reaches it", func(ctx context.Context) {
		c.bosh(ctx, "create-env", "good evening")
		Expect(c.vmPodName(ctx)).NotTo(Equal(first))
		Eventually(c.readJobResponse).WithContext(ctx).Should(ContainSubstring("good evening"))
	}, NodeTimeout(2*longTest))

	It("bosh delete-env leaves no objects", func(ctx context.Context) {
		c.bosh(ctx, "delete-env", "good evening")
		Eventually(func() (string, error) {
			return c.env.embedded.ControlPlane.Kubectl(ctx, "get", "-n", c.namespace, "pods,secrets,persistentvolumeclaims", "-o", "name")
		}).WithContext(ctx).Should(BeEmpty())
	}, NodeTimeout(longTest))
})
