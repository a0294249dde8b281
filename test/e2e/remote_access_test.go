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

	"bosh-kubernetes-cpi/test/embedded"
)

// remoteClient is a network namespace from which only the API server can be reached, and no Pod or node.
type remoteClient struct {
	env          *testEnv
	netns        string
	namespace    string // of the VMs
	dir          string // input and state of create-env
	address      string // of the VM
	proxyAddress string // on the loopback interface of the network namespace
}

// newRemoteClient creates the network namespace and the releases of the demo.
func newRemoteClient(ctx context.Context) *remoteClient {
	GinkgoHelper()
	env := newTestEnv(ctx)
	l := &remoteClient{env: env, namespace: env.namespace, netns: fmt.Sprintf("remote-%d", os.Getpid()), address: newAddress()}
	var err error
	l.dir, err = os.MkdirTemp("", "remote-client")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, l.dir)
	for script, tarball := range map[string]string{"scripts/create-release": "cpi.tgz", "test/release/create-release": "demo.tgz"} {
		out, err := exec.CommandContext(ctx, "../../"+script, filepath.Join(l.dir, tarball)).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
	}
	// kubectl port-forward connects to the VM's loopback interface, on which the agent must listen, too.
	Expect(os.WriteFile(filepath.Join(l.dir, "listen.yml"), []byte(
		"- {type: replace, path: /cloud_provider/properties/agent/mbus, value: 'https://mbus:((mbus_bootstrap_password))@0.0.0.0:6868'}\n"), 0o600)).To(Succeed())
	l.createNetns(ctx)
	return l
}

func (l *remoteClient) createNetns(ctx context.Context) {
	GinkgoHelper()
	_, err := embedded.Run(ctx, "ip", "netns", "add", l.netns)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		_, err := embedded.Run(ctx, "ip", "netns", "delete", l.netns)
		Expect(err).NotTo(HaveOccurred())
	})
	_, err = l.run(ctx, "ip", "link", "set", "lo", "up")
	Expect(err).NotTo(HaveOccurred())
	listener, err := embedded.ForwardLoopback(l.netns, l.env.embedded.ControlPlane.APIPort)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(listener.Close)
}

// command returns a command that runs in the network namespace.
func (l *remoteClient) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "nsenter", append([]string{"--net=/run/netns/" + l.netns, name}, args...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+l.env.kubeconfig, "HOME="+l.dir)
	if l.proxyAddress != "" {
		command.Env = append(command.Env, "BOSH_ALL_PROXY=socks5://"+l.proxyAddress)
	}
	return command
}

func (l *remoteClient) run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := l.command(ctx, name, args...).CombinedOutput()
	return string(out), err
}

// startProxy starts `kubectl bosh proxy`, which runs until the specs have finished.
func (l *remoteClient) startProxy() {
	GinkgoHelper()
	program, err := filepath.Abs("../../bin/kubectl-bosh")
	Expect(err).NotTo(HaveOccurred())
	session, err := gexec.Start(l.command(context.Background(), program, "proxy", "--namespace", l.namespace), GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Eventually(session.Interrupt()).Should(gexec.Exit(0)) })
	Eventually(session.Out).Should(gbytes.Say(`export BOSH_ALL_PROXY=socks5://127\.0\.0\.1:\d+\n`))
	_, l.proxyAddress, _ = strings.Cut(strings.TrimSpace(string(session.Out.Contents())), "socks5://")
}

// bosh runs create-env or delete-env with the demo's manifest and this greeting for its job.
func (l *remoteClient) bosh(ctx context.Context, verb, greeting string) string {
	GinkgoHelper()
	path := func(name string) string { return filepath.Join(l.dir, name) }
	out, err := l.run(ctx, "bosh", verb, "../demo/manifest.yml", "--non-interactive", "-o", path("listen.yml"),
		"--state", path("state.json"), "--vars-store", path("vars.yml"),
		"-v", "cpi_release="+path("cpi.tgz"), "-v", "demo_release="+path("demo.tgz"), "-v", "stemcell="+os.Getenv("E2E_STEMCELL"),
		"--var-file", "kubeconfig="+l.env.kubeconfig, "-v", "namespace="+l.env.namespace,
		"-v", "network_range="+embedded.BOSHNetworkPrefix+".128.0/17", "-v", "network_gateway="+embedded.BOSHGateway, "-v", "address="+l.address,
		"-v", "disk_mib=256", "-v", "disk_cloud_properties={}", "-v", "greeting="+greeting)
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

// dial connects to the VM from the network namespace with this dialer.
func (l *remoteClient) dial(dialer proxy.Dialer, port string) (connection net.Conn, err error) {
	err = embedded.InNetworkNamespace(l.netns, func() error {
		connection, err = dialer.Dial("tcp", net.JoinHostPort(l.address, port))
		return err
	})
	return connection, err
}

// readJobResponse returns the response of the VM's job through the proxy.
func (l *remoteClient) readJobResponse() (string, error) {
	dialer, err := proxy.SOCKS5("tcp", l.proxyAddress, nil, proxy.Direct)
	if err != nil {
		return "", err
	}
	connection, err := l.dial(dialer, "7000")
	if err != nil {
		return "", err
	}
	defer connection.Close()
	line, err := io.ReadAll(connection)
	return string(line), err
}

// vmPodName returns the name of the only VM Pod.
func (l *remoteClient) vmPodName(ctx context.Context) string {
	GinkgoHelper()
	pods, err := l.env.cluster.CoreV1().Pods(l.namespace).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=vm"})
	Expect(err).NotTo(HaveOccurred())
	Expect(pods.Items).To(HaveLen(1))
	return pods.Items[0].Name
}

var _ = Describe("With only a kubeconfig and kubectl bosh proxy, without a route to Pods,", Label("remote-access", "extended"), Ordered, func() {
	var (
		l     *remoteClient
		first string
	)
	BeforeAll(func(ctx context.Context) {
		l = newRemoteClient(ctx)
		l.startProxy()
	}, NodeTimeout(longTest))

	It("bosh create-env creates a VM, and its job answers", func(ctx context.Context) {
		l.bosh(ctx, "create-env", "good morning")
		first = l.vmPodName(ctx)
		_, err := l.dial(&net.Dialer{Timeout: time.Second}, "7000")
		Expect(err).To(HaveOccurred(), "invalid test: the VM can be reached without the proxy")
		Eventually(l.readJobResponse).WithContext(ctx).Should(ContainSubstring("good morning"))
	}, NodeTimeout(2*longTest))

	It("bosh create-env with a change recreates the VM, and the same proxy reaches it", func(ctx context.Context) {
		l.bosh(ctx, "create-env", "good evening")
		Expect(l.vmPodName(ctx)).NotTo(Equal(first))
		Eventually(l.readJobResponse).WithContext(ctx).Should(ContainSubstring("good evening"))
	}, NodeTimeout(2*longTest))

	It("bosh delete-env leaves no objects", func(ctx context.Context) {
		l.bosh(ctx, "delete-env", "good evening")
		Eventually(func() (string, error) {
			return l.env.embedded.ControlPlane.Kubectl(ctx, "get", "-n", l.namespace, "pods,secrets,persistentvolumeclaims", "-o", "name")
		}).WithContext(ctx).Should(BeEmpty())
	}, NodeTimeout(longTest))
})
