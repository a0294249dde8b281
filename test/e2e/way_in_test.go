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

// laptop is a network namespace from which nothing can be reached but the API server: no Pod, no node.
type laptop struct {
	w       *world
	network string
	in      string // the namespace that it leads to
	folder  string // for what create-env reads and keeps
	address string // the machine's
	way     string // the proxy's address, on the laptop's loopback interface
}

// newLaptop has the releases of the demo.
func newLaptop(ctx context.Context) *laptop {
	GinkgoHelper()
	w := newWorld(ctx)
	l := &laptop{w: w, in: w.namespace, network: fmt.Sprintf("way-in-%d", os.Getpid()), address: newAddress()}
	var err error
	l.folder, err = os.MkdirTemp("", "way-in")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, l.folder)
	for script, tarball := range map[string]string{"scripts/create-release": "cpi.tgz", "test/release/create-release": "demo.tgz"} {
		out, err := exec.CommandContext(ctx, "../../"+script, filepath.Join(l.folder, tarball)).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
	}
	// Port-forward reaches what listens on the machine's own loopback interface, too.
	Expect(os.WriteFile(filepath.Join(l.folder, "listen.yml"), []byte(
		"- {type: replace, path: /cloud_provider/properties/agent/mbus, value: 'https://mbus:((mbus_bootstrap_password))@0.0.0.0:6868'}\n"), 0o600)).To(Succeed())
	l.join(ctx)
	return l
}

func (l *laptop) join(ctx context.Context) {
	GinkgoHelper()
	_, err := embedded.Run(ctx, "ip", "netns", "add", l.network)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		_, err := embedded.Run(ctx, "ip", "netns", "delete", l.network)
		Expect(err).NotTo(HaveOccurred())
	})
	_, err = l.run(ctx, "ip", "link", "set", "lo", "up")
	Expect(err).NotTo(HaveOccurred())
	listener, err := embedded.BringLoopback(l.network, l.w.embedded.ControlPlane.APIPort)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(listener.Close)
}

// command is a program's, run on the laptop.
func (l *laptop) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "nsenter", append([]string{"--net=/run/netns/" + l.network, name}, args...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+l.w.kubeconfig, "HOME="+l.folder)
	if l.way != "" {
		command.Env = append(command.Env, "BOSH_ALL_PROXY=socks5://"+l.way)
	}
	return command
}

func (l *laptop) run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := l.command(ctx, name, args...).CombinedOutput()
	return string(out), err
}

// openWay starts `kubectl bosh proxy`, which runs until the tests have ended.
func (l *laptop) openWay() {
	GinkgoHelper()
	program, err := filepath.Abs("../../bin/kubectl-bosh")
	Expect(err).NotTo(HaveOccurred())
	session, err := gexec.Start(l.command(context.Background(), program, "proxy", "--namespace", l.in), GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Eventually(session.Interrupt()).Should(gexec.Exit(0)) })
	Eventually(session.Out).Should(gbytes.Say(`export BOSH_ALL_PROXY=socks5://127\.0\.0\.1:\d+\n`))
	_, l.way, _ = strings.Cut(strings.TrimSpace(string(session.Out.Contents())), "socks5://")
}

// bosh runs create-env or delete-env with the demo's manifest and this greeting of its job.
func (l *laptop) bosh(ctx context.Context, verb, greeting string) string {
	GinkgoHelper()
	in := func(name string) string { return filepath.Join(l.folder, name) }
	out, err := l.run(ctx, "bosh", verb, "../demo/manifest.yml", "--non-interactive", "-o", in("listen.yml"),
		"--state", in("state.json"), "--vars-store", in("vars.yml"),
		"-v", "cpi_release="+in("cpi.tgz"), "-v", "demo_release="+in("demo.tgz"), "-v", "stemcell="+os.Getenv("E2E_STEMCELL"),
		"--var-file", "kubeconfig="+l.w.kubeconfig, "-v", "namespace="+l.w.namespace,
		"-v", "network_range="+embedded.BOSHNetwork+".128.0/17", "-v", "network_gateway="+embedded.BOSHGateway, "-v", "address="+l.address,
		"-v", "disk_mib=256", "-v", "disk_cloud_properties={}", "-v", "greeting="+greeting)
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

// dial connects from the laptop, by the dialer.
func (l *laptop) dial(dialer proxy.Dialer, port string) (connection net.Conn, err error) {
	err = embedded.Inside(l.network, func() error {
		connection, err = dialer.Dial("tcp", net.JoinHostPort(l.address, port))
		return err
	})
	return connection, err
}

// answer is what the machine's job says, by the proxy.
func (l *laptop) answer() (string, error) {
	dialer, err := proxy.SOCKS5("tcp", l.way, nil, proxy.Direct)
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

// vm is the name of the one machine's Pod.
func (l *laptop) vm(ctx context.Context) string {
	GinkgoHelper()
	pods, err := l.w.cluster.CoreV1().Pods(l.in).List(ctx, metav1.ListOptions{LabelSelector: "bosh.cloudfoundry.org/role=vm"})
	Expect(err).NotTo(HaveOccurred())
	Expect(pods.Items).To(HaveLen(1))
	return pods.Items[0].Name
}

var _ = Describe("From a laptop with a kubeconfig and no route to Pods, by kubectl bosh proxy,", Label("way-in", "extended"), Ordered, func() {
	var (
		l     *laptop
		first string
	)
	BeforeAll(func(ctx context.Context) {
		l = newLaptop(ctx)
		l.openWay()
	}, NodeTimeout(longTest))

	It("bosh create-env makes a machine, and its job answers", func(ctx context.Context) {
		l.bosh(ctx, "create-env", "good morning")
		first = l.vm(ctx)
		_, err := l.dial(&net.Dialer{Timeout: time.Second}, "7000")
		Expect(err).To(HaveOccurred(), "the machine can be reached without the proxy: the test proves nothing")
		Eventually(l.answer).WithContext(ctx).Should(ContainSubstring("good morning"))
	}, NodeTimeout(2*longTest))

	It("bosh create-env with a change makes the machine anew, and the same proxy leads to it", func(ctx context.Context) {
		l.bosh(ctx, "create-env", "good evening")
		Expect(l.vm(ctx)).NotTo(Equal(first))
		Eventually(l.answer).WithContext(ctx).Should(ContainSubstring("good evening"))
	}, NodeTimeout(2*longTest))

	It("bosh delete-env leaves nothing", func(ctx context.Context) {
		l.bosh(ctx, "delete-env", "good evening")
		Eventually(func() (string, error) {
			return l.w.embedded.ControlPlane.Kubectl(ctx, "get", "-n", l.in, "pods,secrets,persistentvolumeclaims", "-o", "name")
		}).WithContext(ctx).Should(BeEmpty())
	}, NodeTimeout(longTest))
})
