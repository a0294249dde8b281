package main_test

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const secret = "s3cr3t-token"

// endpoint is the URL of an API server and its CA certificate.
type endpoint struct{ url, caData string }

// kubeconfig writes a kubeconfig with a token that must never be printed. Clients send the token over TLS only.
func (e endpoint) kubeconfig(dir string) string {
	return writeKubeconfig(dir, e.url, secret, e.caData)
}

// newFaultyServer starts an API server with this handler, and counts its requests.
func newFaultyServer(handler http.HandlerFunc) (api endpoint, requests *atomic.Int32) {
	requests = new(atomic.Int32)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler(w, r)
	}))
	DeferCleanup(server.Close)
	caData := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return endpoint{server.URL, string(caData)}, requests
}

// statusReasons are the reasons that API servers report with a status code.
var statusReasons = map[int]metav1.StatusReason{
	http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
	http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
}

func statusHandler(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":%q,"code":%d}`, statusReasons[code], code)
	}
}

var _ = Describe("An API server that cannot be used", func() {
	closedPort := func() endpoint { return endpoint{url: "https://127.0.0.1:1"} }
	faultyEndpoint := func(handler http.HandlerFunc) func() endpoint {
		return func() endpoint { api, _ := newFaultyServer(handler); return api }
	}
	hang := func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(time.Minute):
		}
		panic(http.ErrAbortHandler) // an empty response could still reach a client that cancels the request
	}

	rejectOnce := func(next http.HandlerFunc) http.HandlerFunc {
		var rejected atomic.Bool
		return func(w http.ResponseWriter, r *http.Request) {
			if rejected.CompareAndSwap(false, true) {
				statusHandler(http.StatusUnauthorized)(w, r)
				return
			}
			next(w, r)
		}
	}

	DescribeTable("makes ADD fail with the cause and without credentials if", func(server func() endpoint, timeout string, code int, message string) {
		c := newCall("ADD", "1.1.0", "pod")
		c.Kubeconfig, c.Timeout = server().kubeconfig(c.dir), timeout
		got := c.run()
		d := got.expectError()
		Expect(d.Code).To(BeEquivalentTo(code), d.Msg)
		Expect(d.Msg).To(SatisfyAll(ContainSubstring(message), ContainSubstring(c.Kubeconfig)))
		Expect(got.Stdout + got.Stderr).NotTo(ContainSubstring(secret))
		Expect(c.delegateCalls()).To(BeEmpty())
	},
		Entry("nothing listens", closedPort, "2s", 11, "did not respond within 2s"),
		Entry("it does not respond", faultyEndpoint(hang), "2s", 11, "did not respond within 2s"),
		Entry("it is unavailable", faultyEndpoint(statusHandler(http.StatusServiceUnavailable)), "2s", 11, "did not respond within 2s"),
		Entry("a proxy responds with a bad gateway", faultyEndpoint(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) }), "2s", 11, "did not respond within 2s"),
		Entry("it rejects the token", faultyEndpoint(statusHandler(http.StatusUnauthorized)), "5s", 11, "still rejects the credentials"),
		Entry("it rejects the token, and then does not respond", faultyEndpoint(rejectOnce(hang)), "5s", 11, "still rejects the credentials"),
		Entry("it denies access", faultyEndpoint(statusHandler(http.StatusForbidden)), "1m", 102, "permission to get pods"),
	)

	DescribeTable("does not affect DEL", func(misconfigure func(*call)) {
		api, requests := newFaultyServer(hang)
		c := newCall("DEL", "1.0.0", "pod")
		c.Kubeconfig = api.kubeconfig(c.dir)
		misconfigure(&c)
		got := c.run()
		Expect(got.Status).To(BeZero(), got.Stdout)
		Expect(c.delegateCalls()).To(ConsistOf(HaveField("Command", "DEL")))
		Expect(requests.Load()).To(BeZero())
	},
		Entry("if it does not respond", func(*call) {}),
		Entry("if there is no kubeconfig", func(c *call) { c.Kubeconfig = "/does/not/exist" }),
		Entry("if the shim's configuration is invalid", func(c *call) { c.Shim["kubernetes"], c.Shim["subnets"] = "what", 7 }),
		Entry("if CNI_ARGS are malformed", func(c *call) { c.Args = "what" }),
	)

	It("gets no requests from CHECK, GC and STATUS", func() {
		api, requests := newFaultyServer(hang)
		for _, command := range []string{"CHECK", "GC", "STATUS"} {
			c := newCall(command, "1.1.0", "pod")
			c.Kubeconfig = api.kubeconfig(c.dir)
			Expect(c.run().Status).To(BeZero())
			Expect(c.delegateCalls()).To(HaveLen(1))
		}
		Expect(requests.Load()).To(BeZero())
	})

	It("gets a second request after the installer renews the token", func(ctx SpecContext) {
		createPod(ctx, "pod", annotation)
		var dir string
		api, _ := newFaultyServer(func(w http.ResponseWriter, r *http.Request) {
			writeAccountKubeconfig(dir) // as the installer does
			statusHandler(http.StatusUnauthorized)(w, r)
		})
		c := newCall("ADD", "1.0.0", "pod")
		dir = c.dir
		c.Kubeconfig = api.kubeconfig(c.dir)
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.50/24"}))
	})
})

var _ = Describe("ADD for a Pod", func() {
	It("that does not exist fails", func() {
		c := newCall("ADD", "1.0.0", "nobody")
		d := c.run().expectError()
		Expect(d.Code).To(BeEquivalentTo(3), "unknown container: nothing to clean up")
		Expect(d.Msg).To(ContainSubstring("bosh/nobody"))
		Expect(c.delegateCalls()).To(BeEmpty())
	})

	It("that was replaced by another Pod with the same name fails", func(ctx SpecContext) {
		createPod(ctx, "pod", annotation)
		c := newCall("ADD", "1.0.0", "pod")
		c.Args += ";K8S_POD_UID=former"
		Expect(c.run().expectError()).To(SatisfyAll(HaveField("Code", BeEquivalentTo(3)), HaveField("Msg", ContainSubstring("former"))))
		Expect(c.delegateCalls()).To(BeEmpty())
	})

	It("that is a mirror Pod of a static Pod assigns the address", func(ctx SpecContext) {
		createPod(ctx, "static", `{"kubernetes.io/config.hash":"of-the-node","bosh.cloudfoundry.org/ip-address":"10.9.9.50"}`)
		c := newCall("ADD", "1.0.0", "static")
		c.Args += ";K8S_POD_UID=of-the-node"
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.50/24"}))
	})

	It("with the right UID assigns the address", func(ctx SpecContext) {
		uid := createPod(ctx, "pod", annotation)
		c := newCall("ADD", "1.0.0", "pod")
		c.Args += ";K8S_POD_UID=" + uid
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.50/24"}))
	})
})

var _ = Describe("A delegate", func() {
	newADD := func(ctx SpecContext, version string) call {
		createPod(ctx, "pod", annotation)
		return newCall("ADD", version, "pod")
	}

	DescribeTable("that assigns another address is rolled back, and the error names both addresses:", func(ctx SpecContext, version string, test map[string]any, assigned string) {
		c := newADD(ctx, version)
		c.Test = test
		d := c.run().expectError()
		Expect(d.Code).To(BeEquivalentTo(101))
		Expect(d.CNIVersion).To(Equal(version))
		Expect(d.Msg).To(SatisfyAll(ContainSubstring("10.9.9.50"), ContainSubstring("assigned "+assigned), ContainSubstring("testdelegate"), ContainSubstring("bosh/pod")))
		Expect(c.delegateCalls()).To(HaveExactElements(HaveField("Command", "ADD"), SatisfyAll(
			HaveField("Command", "DEL"), HaveField("Stdin", HaveKeyWithValue("name", "net")))))
		_, hasResult := c.delegateCalls()[1].Stdin["prevResult"]
		Expect(hasResult).To(Equal(version != "0.3.1"), "DEL gets the result of ADD since version 0.4.0")
	},
		Entry("0.3.1", "0.3.1", map[string]any{"assign": []string{"10.9.9.51/24"}}, "10.9.9.51"),
		Entry("1.1.0", "1.1.0", map[string]any{"assign": []string{"10.9.9.51/24", "fd00::1/64"}}, "10.9.9.51,fd00::1"),
		Entry("no address", "1.0.0", map[string]any{"print": `{"cniVersion":"1.0.0"}`}, "none"),
	)

	It("may assign more than the requested addresses", func(ctx SpecContext) {
		c := newADD(ctx, "1.0.0")
		c.Test["assign"] = []string{"fd00::1/64", "10.9.9.50/24"}
		Expect(c.run().ips()).To(HaveLen(2))
		Expect(c.delegateCalls()).To(HaveLen(1))
	})

	It("that also fails to roll back is reported", func(ctx SpecContext) {
		c := newADD(ctx, "1.0.0")
		c.Test["assign"], c.Test["fail"] = []string{"10.9.9.51/24"}, []string{"DEL"}
		Expect(c.run().expectError()).To(SatisfyAll(HaveField("Code", BeEquivalentTo(101)), HaveField("Details", ContainSubstring("cannot DEL"))))
	})

	It("that returns an invalid result is rolled back", func(ctx SpecContext) {
		c := newADD(ctx, "1.0.0")
		c.Test["print"] = "not a result"
		Expect(c.run().expectError().Code).To(BeEquivalentTo(6))
		Expect(c.delegateCalls()).To(HaveExactElements(HaveField("Command", "ADD"), HaveField("Command", "DEL")))
	})

	DescribeTable("that fails with an error document has it returned for", func(ctx SpecContext, command string) {
		c := newADD(ctx, "1.1.0")
		c.Command, c.Test["fail"] = command, []string{command}
		Expect(c.run().expectError()).To(Equal(errorDocument{CNIVersion: "1.1.0", Code: 117, Msg: "the delegate cannot " + command, Details: "for a test"}))
		Expect(c.delegateCalls()).To(HaveLen(1), "the runtime cleans up after a failed ADD")
	}, Entry(nil, "ADD"), Entry(nil, "DEL"), Entry(nil, "CHECK"), Entry(nil, "GC"), Entry(nil, "STATUS"))

	It("that fails without an error document is named", func(ctx SpecContext) {
		c := newADD(ctx, "1.0.0")
		c.Test["crash"] = []string{"ADD"}
		Expect(c.run().expectError()).To(SatisfyAll(HaveField("Code", BeEquivalentTo(999)), HaveField("Msg", ContainSubstring("testdelegate"))))
	})

	It("may log to stderr", func(ctx SpecContext) {
		c := newADD(ctx, "1.0.0")
		c.Test["stderr"] = "a warning"
		Expect(c.run().Stderr).To(Equal("a warning"))
	})

	It("that is not in CNI_PATH is named", func() {
		c := newCall("DEL", "1.0.0", "pod")
		c.Path = c.dir
		Expect(c.run().expectError()).To(SatisfyAll(HaveField("Code", BeEquivalentTo(7)), HaveField("Msg", ContainSubstring("testdelegate"))))
	})
})

var _ = Describe("The shim's configuration", func() {
	writeInvalidKubeconfig := func(c *call) {
		c.Kubeconfig = filepath.Join(c.dir, "garbage")
		Expect(os.WriteFile(c.Kubeconfig, []byte("users:\n- token\n  "+secret+": [\n"), 0o600)).To(Succeed())
	}
	DescribeTable("is rejected by ADD and STATUS", func(configure func(*call), message string) {
		c := newCall("ADD", "1.1.0", "pod")
		configure(&c)
		got := c.run()
		Expect(got.expectError()).To(SatisfyAll(HaveField("Code", BeEquivalentTo(7)), HaveField("Msg", ContainSubstring(message))))
		Expect(got.Stdout + got.Stderr).NotTo(ContainSubstring(secret))
		c.Command = "STATUS"
		Expect(c.run().expectError()).To(SatisfyAll(HaveField("Code", BeEquivalentTo(50)), HaveField("Msg", ContainSubstring(message))))
		Expect(c.delegateCalls()).To(BeEmpty())
	},
		Entry("without a delegate", func(c *call) { c.Shim["delegate"] = nil }, "delegate"),
		Entry("with a delegate without type", func(c *call) { c.Delegate["type"] = "" }, "delegate.type"),
		Entry("with itself as delegate", func(c *call) { c.Delegate["type"] = "bosh-cni-shim" }, "itself"),
		Entry("with a delegate that is a path", func(c *call) { c.Delegate["type"] = "../testdelegate" }, "invalid plugin name"),
		Entry("with a delegate that is not installed", func(c *call) { c.Delegate["type"] = "absent" }, "absent"),
		Entry("without a kubeconfig", func(c *call) { c.Shim["kubernetes"] = map[string]any{} }, "kubernetes.kubeconfig"),
		Entry("with a misspelled key", func(c *call) { c.Shim["kubernetes"] = map[string]any{"kubeconfg": "x"} }, "kubeconfg"),
		Entry("with a timeout of 0", func(c *call) { c.Shim["kubernetes"] = map[string]any{"kubeconfig": "/x", "timeout": "0s"} }, "timeout"),
		Entry("with an empty annotation", func(c *call) { c.Shim["annotation"] = "" }, "annotation"),
		Entry("with an invalid subnet", func(c *call) { c.Shim["subnets"] = []string{"10.0.0.0"} }, "subnets"),
		Entry("with a kubeconfig that does not exist", func(c *call) { c.Kubeconfig = "/does/not/exist" }, "no such file"),
		Entry("with an invalid kubeconfig", writeInvalidKubeconfig, "garbage"),
	)

	DescribeTable("with namespaces, but without a usable kubeconfig, prevents only Pods in these namespaces from starting", func(configure func(*call)) {
		c := newCall("STATUS", "1.1.0", "pod")
		c.Shim["namespaces"] = []string{namespace}
		configure(&c)
		Expect(c.run().Status).To(BeZero(), "a failed STATUS makes the whole node NotReady")
		Expect(c.delegateCalls()).To(ConsistOf(HaveField("Command", "STATUS")))

		c.Command = "ADD"
		Expect(c.run().expectError().Code).To(BeEquivalentTo(7))
		c.Args = "K8S_POD_NAMESPACE=other;K8S_POD_NAME=pod"
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.9/24"}))
	},
		Entry("because it does not exist", func(c *call) { c.Kubeconfig = "/does/not/exist" }),
		Entry("because it is malformed", writeInvalidKubeconfig),
	)

	It("with malformed CNI_ARGS makes ADD fail", func() {
		c := newCall("ADD", "1.0.0", "pod")
		c.Args = "K8S_POD_NAME"
		Expect(c.run().expectError().Code).To(BeEquivalentTo(4))
	})
})
