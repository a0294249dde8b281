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

// way is a proxy that runs.
type way struct {
	*gexec.Session
	dialer proxy.Dialer
}

// open starts `kubectl bosh proxy` as the operator.
func (w world) open(flags ...string) way {
	GinkgoHelper()
	session := start(exec.Command(program, append([]string{"proxy", "--kubeconfig", w.operator}, flags...)...))
	DeferCleanup(func() { Eventually(session.Interrupt()).Should(gexec.Exit(0)) })
	Eventually(session.Out).Should(gbytes.Say(`export BOSH_ALL_PROXY=socks5://127\.0\.0\.1:\d+\n`))
	_, address, _ := strings.Cut(strings.TrimSpace(string(session.Out.Contents())), "socks5://")
	dialer, err := proxy.SOCKS5("tcp", address, nil, proxy.Direct)
	Expect(err).NotTo(HaveOccurred())
	return way{Session: session, dialer: dialer}
}

func start(command *exec.Cmd) *gexec.Session {
	GinkgoHelper()
	session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	return session
}

// dial connects to the address by the proxy.
func (v way) dial(host string, port int) (*net.TCPConn, error) {
	connection, err := v.dialer.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return connection.(*net.TCPConn), connection.SetDeadline(time.Now().Add(30 * time.Second))
}

// ask sends words and their end, and returns the whole answer.
func (v way) ask(host string, port int, words string) (string, error) {
	connection, err := v.dial(host, port)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if _, err := connection.Write([]byte(words)); err != nil {
		return "", err
	}
	if err := connection.CloseWrite(); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(connection)
	return string(answer), err
}

const address = "10.9.8.7"

var _ = Describe("kubectl bosh proxy", func() {
	var w world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	It("reaches a machine by the address that BOSH chose, and brings the answer to who has sent all", func(ctx SpecContext) {
		w.create(ctx, "old", address, nil)
		way := w.open()
		Expect(way.ask(address, portHears, "good day")).To(Equal("old heard: good day\n"))
		Expect(way.ask(address, portGreets, "")).To(Equal("this is old\n"))
	})

	It("carries much in both directions at once", func(ctx SpecContext) {
		w.create(ctx, "old", address, nil)
		connection, err := w.open().dial(address, portServer)
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

	It("holds nobody up for a client that does not read", func(ctx SpecContext) {
		w.create(ctx, "old", address, nil)
		way := w.open()
		slow, err := way.dial(address, portServer)
		Expect(err).NotTo(HaveOccurred())
		defer slow.Close()
		Expect(slow.SetWriteDeadline(time.Now().Add(time.Second))).To(Succeed())
		for err == nil {
			_, err = slow.Write(make([]byte, 1<<20))
		}
		Expect(err).To(MatchError(ContainSubstring("timeout")), "its answers have filled all buffers")
		Expect(way.ask(address, portHears, "and I?")).To(Equal("old heard: and I?\n"))
	})

	It("leads to the machine that has the address now", func(ctx SpecContext) {
		w.create(ctx, "old", address, nil)
		way := w.open()
		Expect(way.ask(address, portGreets, "")).To(Equal("this is old\n"))
		w.must(ctx, "delete_vm", "agent-old")
		w.create(ctx, "new", address, nil)
		Expect(way.ask(address, portGreets, "")).To(Equal("this is new\n"))
	})

	It("waits for a machine that is made anew", func(ctx SpecContext) {
		w.create(ctx, "old", address, nil)
		way := w.open()
		Expect(way.ask(address, portGreets, "")).To(Equal("this is old\n"))
		w.must(ctx, "delete_vm", "agent-old")
		answer := make(chan string, 1)
		go func() {
			defer GinkgoRecover()
			text, err := way.ask(address, portGreets, "")
			Expect(err).NotTo(HaveOccurred())
			answer <- text
		}()
		Consistently(answer, "500ms").ShouldNot(Receive())
		w.create(ctx, "new", address, nil)
		Eventually(answer).WithContext(ctx).Should(Receive(Equal("this is new\n")))
	})

	It("refuses after a while who was a machine once, and says so", func(ctx SpecContext) {
		w.create(ctx, "old", address, nil)
		way := w.open("--wait", "300ms")
		Expect(way.ask(address, portGreets, "")).To(Equal("this is old\n"))
		w.must(ctx, "delete_vm", "agent-old")
		_, err := way.ask(address, portGreets, "")
		Expect(err).To(MatchError(ContainSubstring("host unreachable")))
		Eventually(way.Err).Should(gbytes.Say(`10\.9\.8\.7:7004: refused: no machine has this address.*; waited 300ms`))
	})

	It("passes over a machine that is to end", func(ctx SpecContext) {
		w.create(ctx, "old", address, nil)
		w.annotate(ctx, "agent-old", "test/stays", "true")
		Expect(cluster.CoreV1().Pods(w.namespace).Delete(ctx, "agent-old", metav1.DeleteOptions{})).To(Succeed())
		way := w.open("--wait", "300ms")
		_, err := way.ask(address, portGreets, "")
		Expect(err).To(MatchError(ContainSubstring("host unreachable")))
		Eventually(way.Err).Should(gbytes.Say(`the machine agent-old does not run: its Pod is being deleted`))
		w.createDynamic(ctx, "new", map[string]any{"annotations": map[string]any{"test/address": address}})
		Expect(way.ask(address, portGreets, "")).To(Equal("this is new\n"))
	})

	It("refuses addresses that are nobody's at once, and says what to do", func(ctx SpecContext) {
		way := w.open("--wait", "1h")
		_, err := way.dial("192.0.2.99", 443)
		Expect(err).To(MatchError(ContainSubstring("host unreachable")))
		Eventually(way.Err).Should(gbytes.Say(`192\.0\.2\.99:443: refused: no machine has this address in namespace ` + w.namespace + `.*--direct`))
		_, err = way.dial("bosh.io", 443)
		Expect(err).To(MatchError(ContainSubstring("host unreachable")))
	})

	It("dials them from here with --direct", func() {
		Expect(w.open("--direct").ask("127.0.0.1", server.port(), "straight")).To(Equal("straight"))
	})

	It("ends the connection when nothing listens on the machine's port, and says so", func(ctx SpecContext) {
		w.create(ctx, "old", address, nil)
		way := w.open()
		connection, err := way.dial(address, portClosed)
		Expect(err).NotTo(HaveOccurred())
		_, err = io.ReadAll(connection)
		Expect(err).To(MatchError(ContainSubstring("reset by peer")))
		Eventually(way.Err).Should(gbytes.Say(`10\.9\.8\.7:7002: ended: agent-old:7002: .*connection refused.*0\.0\.0\.0`))
	})

	It("resets what was cut off, so that it does not look whole", func(ctx SpecContext) {
		w.create(ctx, "old", address, nil)
		_, err := w.open().ask(address, portFails, "")
		Expect(err).To(MatchError(ContainSubstring("reset by peer")))
	})
})

var _ = Describe("kubectl bosh proxy, asked for a Service,", func() {
	var w world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	behind := func(service map[string]any) map[string]any { return map[string]any{"services": []any{service}} }
	web := func(more ...any) map[string]any {
		return map[string]any{"name": "web", "keep": true, "external_ips": []string{"192.0.2.7"},
			"ports": append([]any{map[string]any{"port": 80, "target_port": portHears2}}, more...)}
	}

	It("finds it by each of its addresses and names, and maps its port", func(ctx SpecContext) {
		w.create(ctx, "old", address, behind(web()))
		service, err := cluster.CoreV1().Services(w.namespace).Get(ctx, "web", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		service.Spec.Type = corev1.ServiceTypeLoadBalancer
		service, err = cluster.CoreV1().Services(w.namespace).Update(ctx, service, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}, {Hostname: "lb.example.com"}}
		_, err = cluster.CoreV1().Services(w.namespace).UpdateStatus(ctx, service, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		way := w.open()
		for _, host := range []string{
			service.Spec.ClusterIP, "192.0.2.7", "203.0.113.9", "lb.example.com", "web." + w.namespace, "web." + w.namespace + ".svc",
			"web." + w.namespace + ".svc.cluster.local", "WEB." + w.namespace + ".svc.example.org.",
		} {
			Expect(way.ask(host, 80, host)).To(Equal("old heard: "+host+"\n"), host)
		}
		_, err = way.dial("web.elsewhere", 80)
		Expect(err).To(HaveOccurred())
	})

	It("finds the next machine behind it, and waits for that", func(ctx SpecContext) {
		w.create(ctx, "old", address, behind(web()))
		way, name := w.open(), "web."+w.namespace
		Expect(way.ask(name, 80, "")).To(Equal("old heard: \n"))
		w.must(ctx, "delete_vm", "agent-old")
		answer := make(chan string, 1)
		go func() {
			defer GinkgoRecover()
			text, err := way.ask(name, 80, "")
			Expect(err).NotTo(HaveOccurred())
			answer <- text
		}()
		Consistently(answer, "500ms").ShouldNot(Receive())
		w.create(ctx, "new", "10.9.8.8", behind(web()))
		Eventually(answer).WithContext(ctx).Should(Receive(Equal("new heard: \n")))
	})

	It("chooses among machines that are ready, and always the same one", func(ctx SpecContext) {
		w.create(ctx, "old", address, behind(web()))
		w.create(ctx, "new", "10.9.8.8", behind(web()))
		way, name := w.open(), "web."+w.namespace
		first, err := way.ask(name, 80, "")
		Expect(err).NotTo(HaveOccurred())
		for range 3 {
			Expect(way.ask(name, 80, "")).To(Equal(first))
		}
		for _, agent := range []string{"old", "new"} {
			if strings.HasPrefix(first, agent) {
				w.unready(ctx, "agent-"+agent)
			}
		}
		Expect(way.ask(name, 80, "")).NotTo(Equal(first))
	})

	It("refuses ports that it does not have, and names those that it has", func(ctx SpecContext) {
		w.create(ctx, "old", address, behind(web(443)))
		way := w.open()
		_, err := way.dial("web."+w.namespace, 81)
		Expect(err).To(MatchError(ContainSubstring("connection refused")))
		Eventually(way.Err).Should(gbytes.Say(`refused: no such port: Service web has no TCP port 81, but 80, 443`))
	})
})

var _ = Describe("kubectl bosh proxy with a command", func() {
	It("runs it with the proxy's address, and ends as it ends", func(ctx SpecContext) {
		w := newWorld(ctx)
		session := start(exec.Command(program, "proxy", "--kubeconfig", w.operator, "--", "bash", "-c", `echo "by $BOSH_ALL_PROXY"; exit 7`))
		Eventually(session).Should(gexec.Exit(7))
		Expect(session.Out).To(gbytes.Say(`^by socks5://127\.0\.0\.1:\d+\n$`))
		Expect(session.Err.Contents()).To(BeEmpty())
	})

	It("passes signals on, and waits for its end", func(ctx SpecContext) {
		w := newWorld(ctx)
		session := start(exec.Command(program, "proxy", "--kubeconfig", w.operator, "--",
			"bash", "-c", `trap "echo told; exit 9" TERM; echo runs; while :; do read -t 1 <> <(:); done`))
		Eventually(session.Out).Should(gbytes.Say("runs"))
		Eventually(session.Terminate()).Should(gexec.Exit(9))
		Expect(session.Out).To(gbytes.Say("told"))
	})

	It("does not run it for who has no right to see machines", func(ctx SpecContext) {
		w := newWorld(ctx)
		session := start(exec.Command(program, "proxy", "--kubeconfig", w.account(ctx, "nobody", ""), "--", "echo", "runs"))
		Eventually(session).Should(gexec.Exit(1))
		Expect(session.Out.Contents()).To(BeEmpty())
		Expect(session.Err).To(gbytes.Say(`^error: list Pod ` + w.namespace + `/.*forbidden`))
	})
})
