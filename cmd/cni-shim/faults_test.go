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

	"bosh-kubernetes-cpi/test/embedded"
)

const secret = "s3cr3t-token"

// endpoint is where an API server answers, and the authority of its certificate.
type endpoint struct{ url, authority string }

// kubeconfig is one with a token that must never be shown. It is sent over TLS alone.
func (e endpoint) kubeconfig(dir string) string { return kubeconfig(dir, e.url, secret, e.authority) }

// faulty is an API server that answers like this, and the number of requests that it got.
func faulty(answer http.HandlerFunc) (at endpoint, requests *atomic.Int32) {
	requests = new(atomic.Int32)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		answer(w, r)
	}))
	DeferCleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return endpoint{server.URL, string(authority)}, requests
}

// reasons are what an API server says beside the code.
var reasons = map[int]metav1.StatusReason{
	http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
	http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":%q,"code":%d}`, reasons[code], code)
	}
}

var _ = Describe("An API server that gives no answer", func() {
	closed := func() endpoint {
		port, err := embedded.FreePort()
		Expect(err).NotTo(HaveOccurred())
		return endpoint{url: fmt.Sprintf("https://127.0.0.1:%d", port)}
	}
	answering := func(answer http.HandlerFunc) func() endpoint {
		return func() endpoint { at, _ := faulty(answer); return at }
	}
	hang := func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(time.Minute):
		}
	}

	DescribeTable("fails ADD, names the reason, and keeps credentials to itself", func(server func() endpoint, timeout string, code int, says string) {
		c := newCall("ADD", "1.1.0", "pod")
		c.Kubeconfig, c.Timeout = server().kubeconfig(c.dir), timeout
		got := c.run()
		d := got.failure()
		Expect(d.Code).To(BeEquivalentTo(code), d.Msg)
		Expect(d.Msg).To(SatisfyAll(ContainSubstring(says), ContainSubstring(c.Kubeconfig)))
		Expect(got.Stdout + got.Stderr).NotTo(ContainSubstring(secret))
		Expect(c.noted()).To(BeEmpty())
	},
		Entry("nothing listens", closed, "2s", 11, "did not answer within 2s"),
		Entry("it hangs", answering(hang), "2s", 11, "did not answer within 2s"),
		Entry("it has no etcd", answering(status(http.StatusServiceUnavailable)), "2s", 11, "did not answer within 2s"),
		Entry("a proxy answers", answering(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) }), "2s", 11, "did not answer within 2s"),
		Entry("it does not know the token", answering(status(http.StatusUnauthorized)), "2s", 11, "does not accept the credentials"),
		Entry("it forbids", answering(status(http.StatusForbidden)), "1m", 102, "right to get pods"),
	)

	DescribeTable("never keeps a Pod from being deleted", func(spoil func(*call)) {
		at, requests := faulty(hang)
		c := newCall("DEL", "1.0.0", "pod")
		c.Kubeconfig = at.kubeconfig(c.dir)
		spoil(&c)
		got := c.run()
		Expect(got.Status).To(BeZero(), got.Stdout)
		Expect(c.noted()).To(ConsistOf(HaveField("Command", "DEL")))
		Expect(requests.Load()).To(BeZero())
	},
		Entry("although the API hangs", func(*call) {}),
		Entry("although there is no kubeconfig", func(c *call) { c.Kubeconfig = "/does/not/exist" }),
		Entry("although the shim's configuration is wrong", func(c *call) { c.Shim["kubernetes"], c.Shim["subnets"] = "what", 7 }),
		Entry("although CNI_ARGS are malformed", func(c *call) { c.Args = "what" }),
	)

	It("is not asked by CHECK, GC and STATUS", func() {
		at, requests := faulty(hang)
		for _, command := range []string{"CHECK", "GC", "STATUS"} {
			c := newCall(command, "1.1.0", "pod")
			c.Kubeconfig = at.kubeconfig(c.dir)
			Expect(c.run().Status).To(BeZero())
			Expect(c.noted()).To(HaveLen(1))
		}
		Expect(requests.Load()).To(BeZero())
	})

	It("is asked again with a renewed token", func(ctx SpecContext) {
		createPod(ctx, "pod", annotation)
		var dir string
		at, _ := faulty(func(w http.ResponseWriter, r *http.Request) {
			accountKubeconfig(dir) // what the installer does at the same time
			status(http.StatusUnauthorized)(w, r)
		})
		c := newCall("ADD", "1.0.0", "pod")
		dir = c.dir
		c.Kubeconfig = at.kubeconfig(c.dir)
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.50/24"}))
	})
})

var _ = Describe("A Pod that is not the one", func() {
	It("does not exist", func() {
		c := newCall("ADD", "1.0.0", "nobody")
		d := c.run().failure()
		Expect(d.Code).To(BeEquivalentTo(3), "unknown container: there is nothing to clean up")
		Expect(d.Msg).To(ContainSubstring("bosh/nobody"))
		Expect(c.noted()).To(BeEmpty())
	})

	It("was replaced by another of its name", func(ctx SpecContext) {
		createPod(ctx, "pod", annotation)
		c := newCall("ADD", "1.0.0", "pod")
		c.Args += ";K8S_POD_UID=former"
		Expect(c.run().failure()).To(SatisfyAll(HaveField("Code", BeEquivalentTo(3)), HaveField("Msg", ContainSubstring("former"))))
		Expect(c.noted()).To(BeEmpty())
	})

	It("is the API's picture of a static Pod", func(ctx SpecContext) {
		createPod(ctx, "static", `{"kubernetes.io/config.hash":"of-the-node","bosh.cloudfoundry.org/ip-address":"10.9.9.50"}`)
		c := newCall("ADD", "1.0.0", "static")
		c.Args += ";K8S_POD_UID=of-the-node"
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.50/24"}))
	})

	It("is the one", func(ctx SpecContext) {
		uid := createPod(ctx, "pod", annotation)
		c := newCall("ADD", "1.0.0", "pod")
		c.Args += ";K8S_POD_UID=" + uid
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.50/24"}))
	})
})

var _ = Describe("A delegate", func() {
	asking := func(ctx SpecContext, version string) call {
		createPod(ctx, "pod", annotation)
		return newCall("ADD", version, "pod")
	}

	DescribeTable("that gives another address is undone, and the error names both", func(ctx SpecContext, version string, test map[string]any, gave string) {
		c := asking(ctx, version)
		c.Test = test
		d := c.run().failure()
		Expect(d.Code).To(BeEquivalentTo(101))
		Expect(d.CNIVersion).To(Equal(version))
		Expect(d.Msg).To(SatisfyAll(ContainSubstring("10.9.9.50"), ContainSubstring("gave "+gave), ContainSubstring("testdelegate"), ContainSubstring("bosh/pod")))
		Expect(c.noted()).To(HaveExactElements(HaveField("Command", "ADD"), SatisfyAll(
			HaveField("Command", "DEL"), HaveField("Stdin", HaveKeyWithValue("name", "net")))))
		_, passed := c.noted()[1].Stdin["prevResult"]
		Expect(passed).To(Equal(version != "0.3.1"), "DEL takes the result from 0.4.0 on")
	},
		Entry("0.3.1", "0.3.1", map[string]any{"give": []string{"10.9.9.51/24"}}, "10.9.9.51"),
		Entry("1.1.0", "1.1.0", map[string]any{"give": []string{"10.9.9.51/24", "fd00::1/64"}}, "10.9.9.51,fd00::1"),
		Entry("none at all", "1.0.0", map[string]any{"print": `{"cniVersion":"1.0.0"}`}, "none"),
	)

	It("may give more than was asked for", func(ctx SpecContext) {
		c := asking(ctx, "1.0.0")
		c.Test["give"] = []string{"fd00::1/64", "10.9.9.50/24"}
		Expect(c.run().ips()).To(HaveLen(2))
		Expect(c.noted()).To(HaveLen(1))
	})

	It("that cannot undo it either is said to", func(ctx SpecContext) {
		c := asking(ctx, "1.0.0")
		c.Test["give"], c.Test["fail"] = []string{"10.9.9.51/24"}, []string{"DEL"}
		Expect(c.run().failure()).To(SatisfyAll(HaveField("Code", BeEquivalentTo(101)), HaveField("Details", ContainSubstring("cannot DEL"))))
	})

	It("that answers no result is undone", func(ctx SpecContext) {
		c := asking(ctx, "1.0.0")
		c.Test["print"] = "I feel fine"
		Expect(c.run().failure().Code).To(BeEquivalentTo(6))
		Expect(c.noted()).To(HaveExactElements(HaveField("Command", "ADD"), HaveField("Command", "DEL")))
	})

	DescribeTable("that fails is quoted", func(ctx SpecContext, command string) {
		c := asking(ctx, "1.1.0")
		c.Command, c.Test["fail"] = command, []string{command}
		Expect(c.run().failure()).To(Equal(document{CNIVersion: "1.1.0", Code: 117, Msg: "the delegate cannot " + command, Details: "for a test"}))
		Expect(c.noted()).To(HaveLen(1), "the runtime cleans up after a failed ADD")
	}, Entry(nil, "ADD"), Entry(nil, "DEL"), Entry(nil, "CHECK"), Entry(nil, "GC"), Entry(nil, "STATUS"))

	It("that ends without a word is named", func(ctx SpecContext) {
		c := asking(ctx, "1.0.0")
		c.Test["crash"] = []string{"ADD"}
		Expect(c.run().failure()).To(SatisfyAll(HaveField("Code", BeEquivalentTo(999)), HaveField("Msg", ContainSubstring("testdelegate"))))
	})

	It("may log to stderr", func(ctx SpecContext) {
		c := asking(ctx, "1.0.0")
		c.Test["stderr"] = "a warning"
		Expect(c.run().Stderr).To(Equal("a warning"))
	})

	It("is the only one that CNI_PATH is searched for", func() {
		c := newCall("DEL", "1.0.0", "pod")
		c.Path = c.dir
		Expect(c.run().failure()).To(SatisfyAll(HaveField("Code", BeEquivalentTo(7)), HaveField("Msg", ContainSubstring("testdelegate"))))
	})
})

var _ = Describe("The shim's configuration", func() {
	garbage := func(c *call) {
		c.Kubeconfig = filepath.Join(c.dir, "garbage")
		Expect(os.WriteFile(c.Kubeconfig, []byte("users:\n- token\n  "+secret+": [\n"), 0o600)).To(Succeed())
	}
	DescribeTable("is refused with the reason; STATUS says that ADD cannot be served", func(change func(*call), says string) {
		c := newCall("ADD", "1.1.0", "pod")
		change(&c)
		got := c.run()
		Expect(got.failure()).To(SatisfyAll(HaveField("Code", BeEquivalentTo(7)), HaveField("Msg", ContainSubstring(says))))
		Expect(got.Stdout + got.Stderr).NotTo(ContainSubstring(secret))
		c.Command = "STATUS"
		Expect(c.run().failure()).To(SatisfyAll(HaveField("Code", BeEquivalentTo(50)), HaveField("Msg", ContainSubstring(says))))
		Expect(c.noted()).To(BeEmpty())
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
		Entry("with a subnet that is none", func(c *call) { c.Shim["subnets"] = []string{"10.0.0.0"} }, "subnets"),
		Entry("with a kubeconfig that is not there", func(c *call) { c.Kubeconfig = "/does/not/exist" }, "no such file"),
		Entry("with a kubeconfig that is none", garbage, "garbage"),
	)

	DescribeTable("without a usable kubeconfig, and with namespaces, keeps only the Pods of those namespaces from starting", func(change func(*call)) {
		c := newCall("STATUS", "1.1.0", "pod")
		c.Shim["namespaces"] = []string{namespace}
		change(&c)
		Expect(c.run().Status).To(BeZero(), "STATUS of the shim makes the whole node NotReady when it fails")
		Expect(c.noted()).To(ConsistOf(HaveField("Command", "STATUS")))

		c.Command = "ADD"
		Expect(c.run().failure().Code).To(BeEquivalentTo(7))
		c.Args = "K8S_POD_NAMESPACE=other;K8S_POD_NAME=pod"
		Expect(c.run().ips()).To(Equal([]string{"10.9.9.9/24"}))
	},
		Entry("because it does not exist", func(c *call) { c.Kubeconfig = "/does/not/exist" }),
		Entry("because it is malformed", garbage),
	)

	It("and CNI_ARGS have to be well-formed for ADD", func() {
		c := newCall("ADD", "1.0.0", "pod")
		c.Args = "K8S_POD_NAME"
		Expect(c.run().failure().Code).To(BeEquivalentTo(4))
	})
})
