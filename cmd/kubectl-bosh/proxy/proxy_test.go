package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	netproxy "golang.org/x/net/proxy"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
)

func TestProxy(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	RunSpecs(t, "proxy")
}

const namespace = "bosh"

var _ = Describe("The proxy", func() {
	var api *memoryapi.Server
	var config *rest.Config
	var client *kube.Client
	BeforeEach(func() {
		api = memoryapi.New()
		server := httptest.NewServer(api) // a port is forwarded by a TCP connection
		DeferCleanup(server.Close)
		config = &rest.Config{Host: server.URL}
		var err error
		client, err = kube.NewForConfig(config, namespace, 0)
		Expect(err).NotTo(HaveOccurred())
	})

	// addVM adds a ready VM with this address.
	addVM := func(name, address string, age time.Duration) {
		vm := manifest.VM{Name: name, Namespace: namespace, Director: "d", Services: []manifest.Service{{Name: "web"}}}.Pod()
		vm.CreationTimestamp = metav1.NewTime(time.Now().Add(-age))
		vm.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
		vm.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: address}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		api.Add("pods", namespace, vm.Pod)
	}
	addService := func(change func(*corev1.Service)) {
		vm := manifest.VM{Name: "agent-a", Namespace: namespace, Director: "d"}.Pod()
		service := (manifest.Service{Name: "web"}).Object(vm, "d")
		service.Spec.ClusterIP, service.Spec.ClusterIPs = "10.96.0.7", []string{"10.96.0.7"}
		service.Spec.Ports = []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}, {Port: 443}, {Port: 81, TargetPort: intstr.FromInt32(8081)},
			{Port: 53, Protocol: corev1.ProtocolUDP}, {Port: 82, TargetPort: intstr.FromString("none")}}
		change(service)
		api.Add("services", namespace, service)
	}
	keep := func(*corev1.Service) {}

	Describe("finds", func() {
		DescribeTable("the VM behind", func(ctx context.Context, host string, port int, expected string) {
			addVM("agent-old", "10.0.0.1", time.Hour)
			addVM("agent-new", "10.0.0.2", time.Minute)
			addService(func(s *corev1.Service) {
				s.Spec.ExternalIPs = []string{"192.0.2.1"}
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.org"}, {IP: "192.0.2.2"}}
			})
			target, err := (&Finder{Client: client, Wait: time.Minute}).Find(ctx, host, int32(port), nil) //nolint:gosec // a port
			Expect(err).NotTo(HaveOccurred())
			Expect(target.String()).To(Equal(expected))
		},
			Entry("its address", "10.0.0.2", 22, "agent-new:22"),
			Entry("its address as IPv6", "::ffff:10.0.0.1", 22, "agent-old:22"),
			Entry("a Service, always the oldest", "10.96.0.7", 80, "agent-old:8080 (Service web)"),
			Entry("a number of a target port", "10.96.0.7", 81, "agent-old:8081 (Service web)"),
			Entry("a port without a target port", "10.96.0.7", 443, "agent-old:443 (Service web)"),
			Entry("an external address", "192.0.2.1", 443, "agent-old:443 (Service web)"),
			Entry("an address of a load balancer", "192.0.2.2", 443, "agent-old:443 (Service web)"),
			Entry("a name of a load balancer", "LB.example.org", 443, "agent-old:443 (Service web)"),
			Entry("a name of a Service", "web.bosh.svc.cluster.local.", 443, "agent-old:443 (Service web)"),
		)

		DescribeTable("no VM if", func(ctx context.Context, kind error, message, host string, port int, prepare func()) {
			prepare()
			_, err := (&Finder{Client: client, Wait: 500 * time.Millisecond}).Find(ctx, host, int32(port), nil) //nolint:gosec // a port
			Expect(err).To(And(MatchError(kind), MatchError(ContainSubstring(message))))
		},
			Entry("the address is unknown", ErrUnknownAddress, "no VM or Service in namespace bosh", "10.0.0.9", 22, func() {}),
			Entry("the VM is not running", ErrNotRunning, "Pod agent-a is Failed (waited 500ms)", "10.0.0.1", 22, func() {
				addVM("agent-a", "10.0.0.1", 0)
				memoryapi.Update(api, "pods", namespace, "agent-a", &corev1.Pod{}, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
			}),
			Entry("no VM behind the Service is ready", ErrNotRunning, "no VM behind Service web is ready", "10.96.0.7", 443, func() { addService(keep) }),
			Entry("the Service has no such port", ErrNoPort, "its TCP ports are 80, 443, 81, 82", "10.96.0.7", 53, func() {
				addVM("agent-a", "10.0.0.1", 0)
				addService(keep)
			}),
			Entry("the VM has no such named port", ErrNoPort, `targets port "none"`, "10.96.0.7", 82, func() {
				addVM("agent-a", "10.0.0.1", 0)
				addService(keep)
			}),
			Entry("the Service selects no Pods", ErrUnknownAddress, "does not select Pods", "10.96.0.7", 443, func() {
				addService(func(s *corev1.Service) { s.Spec.Selector = nil })
			}),
			Entry("the Service is for other Pods", ErrUnknownAddress, "selects no VM", "10.96.0.7", 443, func() {
				addService(func(s *corev1.Service) { s.Labels, s.Spec.Selector = nil, map[string]string{"app": "other"} })
			}),
		)

		It("a running VM without a wait", func(ctx context.Context) {
			addVM("agent-a", "10.0.0.1", 0)
			target, err := (&Finder{Client: client}).Find(ctx, "10.0.0.1", 22, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(target.String()).To(Equal("agent-a:22"))
		})

		It("a VM that is recreated, after a wait", func(ctx context.Context) {
			addVM("agent-a", "10.0.0.1", 0)
			finder := &Finder{Client: client, Wait: time.Minute}
			first, err := finder.Find(ctx, "10.0.0.1", 22, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(client.Pods.Delete(ctx, first.Pod.Pod)).To(Succeed())
			found := make(chan string)
			go func() {
				defer GinkgoRecover()
				target, err := finder.Find(ctx, "10.0.0.1", 22, map[types.UID]bool{first.Pod.UID: true})
				Expect(err).NotTo(HaveOccurred())
				found <- target.String()
			}()
			addVM("agent-b", "10.0.0.1", 0)
			Expect(<-found).To(Equal("agent-b:22"))
		})
	})

	Describe("serves a SOCKS client", func() {
		var log chan string
		var server *Server
		BeforeEach(func() {
			log = make(chan string, 10)
			server = New(client, config)
			server.Finder.Wait = time.Minute
			server.Log = func(line string) { log <- line }
		})
		// request sends a request through the proxy to the address, and returns the response.
		request := func(address string) (string, error) {
			GinkgoHelper()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			Expect(err).NotTo(HaveOccurred())
			ctx, cancel := context.WithCancel(context.Background())
			served := make(chan error)
			go func() { served <- server.Serve(ctx, listener) }()
			DeferCleanup(func() {
				cancel()
				Expect(<-served).To(Succeed())
			})
			dialer, err := netproxy.SOCKS5("tcp", listener.Addr().String(), nil, netproxy.Direct)
			Expect(err).NotTo(HaveOccurred())
			conn, err := dialer.Dial("tcp", address)
			if err != nil {
				return "", err
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "ping\n"); err != nil {
				return "", err
			}
			buffer := make([]byte, 64)
			n, err := conn.Read(buffer)
			return string(buffer[:n]), err
		}
		// forward makes the API server forward ports like a node, with this error if it is not empty.
		forward := func(failure string) {
			api.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/portforward") {
					return false
				}
				if r.Header.Get("Upgrade") == "websocket" {
					w.WriteHeader(http.StatusBadRequest)
					return true
				}
				_, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name})
				Expect(err).NotTo(HaveOccurred())
				streams := make(chan httpstream.Stream, 2)
				conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
					streams <- stream
					return nil
				})
				defer conn.Close()
				byType := map[string]httpstream.Stream{}
				for range 2 {
					stream := <-streams
					byType[stream.Headers().Get(corev1.StreamType)] = stream
				}
				data := byType[corev1.StreamTypeData]
				if failure != "" {
					_, _ = io.WriteString(byType[corev1.StreamTypeError], failure)
				} else {
					buffer := make([]byte, 64)
					n, _ := data.Read(buffer)
					_, _ = fmt.Fprintf(data, "pong to %s", buffer[:n])
				}
				_ = data.Close()
				_ = byType[corev1.StreamTypeError].Close()
				<-conn.CloseChan()
				return true
			}
		}

		It("by a forwarded port of a VM", func() {
			addVM("agent-a", "10.0.0.1", 0)
			forward("")
			Expect(request("10.0.0.1:22")).To(Equal("pong to ping\n"))
		})

		It("and resets the connection if nothing listens on the port", func() {
			addVM("agent-a", "10.0.0.1", 0)
			forward("connection refused")
			_, err := request("10.0.0.1:22")
			Expect(err).To(HaveOccurred())
			Eventually(log).Should(Receive(And(ContainSubstring("connection refused"), ContainSubstring("nothing listens on this port"))))
		})

		DescribeTable("and logs a failure only if it lasts for the grace period:", func(since time.Duration, logged bool) {
			addVM("agent-a", "10.0.0.1", 0)
			forward("connection refused")
			server.Grace = time.Minute
			server.failures.record("10.0.0.1:22", time.Now().Add(-since))
			_, err := request("10.0.0.1:22")
			Expect(err).To(HaveOccurred())
			if logged {
				Eventually(log).Should(Receive(ContainSubstring("connection refused")))
			} else {
				Consistently(log).ShouldNot(Receive())
			}
		},
			Entry("shorter", time.Second, false),
			Entry("longer", time.Hour, true),
		)

		It("and logs the failure of a direct connection at once", func() {
			server.Direct, server.Grace = true, time.Minute
			_, err := request("127.0.0.1:1")
			Expect(err).To(HaveOccurred())
			Eventually(log).Should(Receive(HavePrefix("127.0.0.1:1: refused")))
		})

		It("and starts the grace period again after a success", func() {
			addVM("agent-a", "10.0.0.1", 0)
			forward("")
			server.failures.record("10.0.0.1:22", time.Now())
			Expect(request("10.0.0.1:22")).To(Equal("pong to ping\n"))
			Eventually(func() time.Duration { return server.failures.record("10.0.0.1:22", time.Unix(0, 0)) }).Should(BeZero())
		})

		It("and refuses an unknown address, with the remedy in the log", func() {
			_, err := request("192.0.2.9:80")
			Expect(err).To(MatchError(ContainSubstring("host unreachable")))
			Eventually(log).Should(Receive(And(HavePrefix("192.0.2.9:80: refused"), ContainSubstring("connect to other addresses directly with --direct"))))
		})

		It("directly, if that is enabled", func() {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(listener.Close)
			go func() {
				conn, err := listener.Accept()
				if err == nil {
					_, _ = io.WriteString(conn, "direct")
					conn.Close()
				}
			}()
			server.Direct = true
			Expect(request(listener.Addr().String())).To(Equal("direct"))
		})
	})

	It("checks that VMs can be listed", func(ctx context.Context) {
		server := New(client, config)
		Expect(server.Check(ctx)).To(Succeed())
		api.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		err := server.Check(ctx)
		Expect(err).To(MatchError(kube.ErrDenied))
		Expect(remedy(err)).To(ContainSubstring("lists the required permissions"))
	})
})
