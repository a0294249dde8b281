package main_test

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"golang.org/x/net/proxy"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// proxySession is a running proxy.
type proxySession struct {
	*gexec.Session
	dialer proxy.Dialer
}

// startProxy starts `kubectl bosh proxy` with the operator's kubeconfig.
func (e testEnv) startProxy(flags ...string) proxySession {
	GinkgoHelper()
	session := startCommand(exec.Command(program, append([]string{"proxy", "--kubeconfig", e.kubeconfig}, flags...)...))
	DeferCleanup(func() { Eventually(session.Interrupt()).Should(gexec.Exit(0)) })
	Eventually(session.Out).Should(gbytes.Say(`export BOSH_ALL_PROXY=socks5://127\.0\.0\.1:\d+\n`))
	_, address, _ := strings.Cut(strings.TrimSpace(string(session.Out.Contents())), "socks5://")
	dialer, err := proxy.SOCKS5("tcp", address, nil, proxy.Direct)
	Expect(err).NotTo(HaveOccurred())
	return proxySession{Session: session, dialer: dialer}
}

func startCommand(command *exec.Cmd) *gexec.Session {
	GinkgoHelper()
	session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	return session
}

// dial connects to the address through the proxy.
func (s proxySession) dial(host string, port int) (*net.TCPConn, error) {
	connection, err := s.dialer.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return connection.(*net.TCPConn), connection.SetDeadline(time.Now().Add(30 * time.Second))
}

// exchange sends the message, closes the sending direction, and returns the response.
func (s proxySession) exchange(host string, port int, message string) (string, error) {
	connection, err := s.dial(host, port)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if _, err := connection.Write([]byte(message)); err != nil {
		return "", err
	}
	if err := connection.CloseWrite(); err != nil {
		return "", err
	}
	response, err := io.ReadAll(connection)
	return string(response), err
}

const address = "10.9.8.7"

var _ = Describe("kubectl bosh proxy", func() {
	var env testEnv
	BeforeEach(func(ctx SpecContext) { env = newTestEnv(ctx) })

	It("connects to a VM by its requested address, and returns a response sent after the client closes its sending direction", func(ctx SpecContext) {
		env.createVM(ctx, "old", address, nil)
		p := env.startProxy()
		Expect(p.exchange(address, portReply, "good day")).To(Equal("old heard: good day\n"))
		Expect(p.exchange(address, portGreeting, "")).To(Equal("this is old\n"))
	})

	It("copies large amounts of data in both directions at the same time", func(ctx SpecContext) {
		env.createVM(ctx, "old", address, nil)
		connection, err := env.startProxy().dial(address, portServer)
		Expect(err).NotTo(HaveOccurred())
		defer connection.Close()
		sent := make([]byte, 8<<20)
		_, _ = rand.Read(sent)
		go func() { _, _ = connection.Write(sent) }()
		got := make([]byte, len(sent))
		_, err = io.ReadFull(connection, got)
		Expect(err).NotTo(HaveOccurred())
		Expect(bytes.Equal(got, sent)).To(BeTrue())
	})

	It("serves other clients while one does not read", func(ctx SpecContext) {
		env.createVM(ctx, "old", address, nil)
		p := env.startProxy()
		slow, err := p.dial(address, portServer)
		Expect(err).NotTo(HaveOccurred())
		defer slow.Close()
		Expect(slow.SetWriteDeadline(time.Now().Add(time.Second))).To(Succeed())
		for err == nil {
			_, err = slow.Write(make([]byte, 1<<20))
		}
		Expect(err).To(MatchError(ContainSubstring("timeout")), "responses fill all buffers")
		Expect(p.exchange(address, portReply, "me too?")).To(Equal("old heard: me too?\n"))
	})

	It("connects to the VM that has the address now", func(ctx SpecContext) {
		env.createVM(ctx, "old", address, nil)
		p := env.startProxy()
		Expect(p.exchange(address, portGreeting, "")).To(Equal("this is old\n"))
		env.mustCall(ctx, "delete_vm", "agent-old")
		env.createVM(ctx, "new", address, nil)
		Expect(p.exchange(address, portGreeting, "")).To(Equal("this is new\n"))
	})

	It("waits for a VM that is recreated", func(ctx SpecContext) {
		env.createVM(ctx, "old", address, nil)
		p := env.startProxy()
		Expect(p.exchange(address, portGreeting, "")).To(Equal("this is old\n"))
		env.mustCall(ctx, "delete_vm", "agent-old")
		responses := make(chan string, 1)
		go func() {
			defer GinkgoRecover()
			response, err := p.exchange(address, portGreeting, "")
			Expect(err).NotTo(HaveOccurred())
			responses <- response
		}()
		Consistently(responses, "500ms").ShouldNot(Receive())
		env.createVM(ctx, "new", address, nil)
		Eventually(responses).WithContext(ctx).Should(Receive(Equal("this is new\n")))
	})

	It("refuses and logs the address of a deleted VM after --wait", func(ctx SpecContext) {
		env.createVM(ctx, "old", address, nil)
		p := env.startProxy("--wait", "300ms")
		Expect(p.exchange(address, portGreeting, "")).To(Equal("this is old\n"))
		env.mustCall(ctx, "delete_vm", "agent-old")
		_, err := p.exchange(address, portGreeting, "")
		Expect(err).To(MatchError(ContainSubstring("host unreachable")))
		Eventually(p.Err).Should(gbytes.Say(`10\.9\.8\.7:7004: refused: no VM or Service in namespace \S+ has this address \(waited 300ms\)`))
	})

	It("ignores a VM that is being deleted", func(ctx SpecContext) {
		env.createVM(ctx, "old", address, nil)
		env.annotatePod(ctx, "agent-old", "test/stays", "true")
		Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, "agent-old", metav1.DeleteOptions{})).To(Succeed())
		p := env.startProxy("--wait", "300ms")
		_, err := p.exchange(address, portGreeting, "")
		Expect(err).To(MatchError(ContainSubstring("host unreachable")))
		Eventually(p.Err).Should(gbytes.Say(`no running VM has address \S+: Pod agent-old is being deleted \(waited 300ms\)`))
		env.createDynamicVM(ctx, "new", map[string]any{"annotations": map[string]any{"test/address": address}})
		Expect(p.exchange(address, portGreeting, "")).To(Equal("this is new\n"))
	})

	It("refuses unknown addresses immediately, and logs the remedy", func(ctx SpecContext) {
		p := env.startProxy("--wait", "1h")
		_, err := p.dial("192.0.2.99", 443)
		Expect(err).To(MatchError(ContainSubstring("host unreachable")))
		Eventually(p.Err).Should(gbytes.Say(`192\.0\.2\.99:443: refused: no VM or Service in namespace ` + env.namespace + ` has this address; .*--direct`))
		_, err = p.dial("bosh.io", 443)
		Expect(err).To(MatchError(ContainSubstring("host unreachable")))
	})

	It("connects to unknown addresses directly with --direct", func() {
		Expect(env.startProxy("--direct").exchange("127.0.0.1", server.port(), "straight")).To(Equal("straight"))
	})

	It("resets the connection and logs the cause if nothing listens on the VM's port", func(ctx SpecContext) {
		env.createVM(ctx, "old", address, nil)
		p := env.startProxy()
		connection, err := p.dial(address, portClosed)
		Expect(err).NotTo(HaveOccurred())
		_, err = io.ReadAll(connection)
		Expect(err).To(MatchError(ContainSubstring("reset by peer")))
		Eventually(p.Err).Should(gbytes.Say(`10\.9\.8\.7:7002: connection to agent-old:7002 failed: .*connection refused.*0\.0\.0\.0`))
	})

	It("resets the connection after a truncated response", func(ctx SpecContext) {
		env.createVM(ctx, "old", address, nil)
		_, err := env.startProxy().exchange(address, portFails, "")
		Expect(err).To(MatchError(ContainSubstring("reset by peer")))
	})
})

var _ = Describe("kubectl bosh proxy to a Service", func() {
	var env testEnv
	BeforeEach(func(ctx SpecContext) { env = newTestEnv(ctx) })

	withService := func(service map[string]any) map[string]any { return map[string]any{"services": []any{service}} }
	web := func(more ...any) map[string]any {
		return map[string]any{"name": "web", "keep": true, "external_ips": []string{"192.0.2.7"},
			"ports": append([]any{map[string]any{"port": 80, "target_port": portReply2}}, more...)}
	}

	It("accepts each of its addresses and names, and maps its port", func(ctx SpecContext) {
		env.createVM(ctx, "old", address, withService(web()))
		service, err := cluster.CoreV1().Services(env.namespace).Get(ctx, "web", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		service.Spec.Type = corev1.ServiceTypeLoadBalancer
		service, err = cluster.CoreV1().Services(env.namespace).Update(ctx, service, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}, {Hostname: "lb.example.com"}}
		_, err = cluster.CoreV1().Services(env.namespace).UpdateStatus(ctx, service, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		p := env.startProxy()
		for _, host := range []string{
			service.Spec.ClusterIP, "192.0.2.7", "203.0.113.9", "lb.example.com", "web." + env.namespace, "web." + env.namespace + ".svc",
			"web." + env.namespace + ".svc.cluster.local", "WEB." + env.namespace + ".svc.example.org.",
		} {
			Expect(p.exchange(host, 80, host)).To(Equal("old heard: "+host+"\n"), host)
		}
		_, err = p.dial("web.elsewhere", 80)
		Expect(err).To(HaveOccurred())
	})

	It("waits for the next VM behind it", func(ctx SpecContext) {
		env.createVM(ctx, "old", address, withService(web()))
		p, name := env.startProxy(), "web."+env.namespace
		Expect(p.exchange(name, 80, "")).To(Equal("old heard: \n"))
		env.mustCall(ctx, "delete_vm", "agent-old")
		responses := make(chan string, 1)
		go func() {
			defer GinkgoRecover()
			response, err := p.exchange(name, 80, "")
			Expect(err).NotTo(HaveOccurred())
			responses <- response
		}()
		Consistently(responses, "500ms").ShouldNot(Receive())
		env.createVM(ctx, "new", "10.9.8.8", withService(web()))
		Eventually(responses).WithContext(ctx).Should(Receive(Equal("new heard: \n")))
	})

	It("always chooses the same VM among those that are ready", func(ctx SpecContext) {
		env.createVM(ctx, "old", address, withService(web()))
		env.createVM(ctx, "new", "10.9.8.8", withService(web()))
		p, name := env.startProxy(), "web."+env.namespace
		first, err := p.exchange(name, 80, "")
		Expect(err).NotTo(HaveOccurred())
		for range 3 {
			Expect(p.exchange(name, 80, "")).To(Equal(first))
		}
		for _, agent := range []string{"old", "new"} {
			if strings.HasPrefix(first, agent) {
				env.markUnready(ctx, "agent-"+agent)
			}
		}
		Expect(p.exchange(name, 80, "")).NotTo(Equal(first))
	})

	It("refuses unknown ports, and logs the known ones", func(ctx SpecContext) {
		env.createVM(ctx, "old", address, withService(web(443)))
		p := env.startProxy()
		_, err := p.dial("web."+env.namespace, 81)
		Expect(err).To(MatchError(ContainSubstring("connection refused")))
		Eventually(p.Err).Should(gbytes.Say(`refused: Service web has no TCP port 81; its TCP ports are 80, 443`))
	})
})

var _ = Describe("kubectl bosh proxy with a command", func() {
	It("runs it with the proxy's address, and exits with its exit status", func(ctx SpecContext) {
		env := newTestEnv(ctx)
		session := startCommand(exec.Command(program, "proxy", "--kubeconfig", env.kubeconfig, "--", "bash", "-c", `echo "by $BOSH_ALL_PROXY"; exit 7`))
		Eventually(session).Should(gexec.Exit(7))
		Expect(session.Out).To(gbytes.Say(`^by socks5://127\.0\.0\.1:\d+\n$`))
		Expect(session.Err.Contents()).To(BeEmpty())
	})

	It("forwards signals, and waits for it", func(ctx SpecContext) {
		env := newTestEnv(ctx)
		session := startCommand(exec.Command(program, "proxy", "--kubeconfig", env.kubeconfig, "--",
			"bash", "-c", `trap "echo trapped; exit 9" TERM; echo runs; while :; do read -t 1 <> <(:); done`))
		Eventually(session.Out).Should(gbytes.Say("runs"))
		Eventually(session.Terminate()).Should(gexec.Exit(9))
		Expect(session.Out).To(gbytes.Say("trapped"))
	})

	It("does not run it without permission to list Pods", func(ctx SpecContext) {
		env := newTestEnv(ctx)
		session := startCommand(exec.Command(program, "proxy", "--kubeconfig", env.createAccount(ctx, "nobody", ""), "--", "echo", "runs"))
		Eventually(session).Should(gexec.Exit(1))
		Expect(session.Out.Contents()).To(BeEmpty())
		Expect(session.Err).To(gbytes.Say(`^error: list Pod ` + env.namespace + `/.*forbidden`))
	})
})
