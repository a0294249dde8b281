package kube

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
)

const podJSON = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"agent-1"}}`

var _ = Describe("A request that the API server forbids", func() {
	// refusing forbids requests until it was asked whether it is ready as often as that, and answers so each time.
	var readinessChecks, refused *atomic.Int32
	forbidUntil := func(readiness http.HandlerFunc, until int32) *rest.Config {
		readinessChecks, refused = new(atomic.Int32), new(atomic.Int32)
		serving := startServer(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/readyz":
				readinessChecks.Add(1)
				readiness(w, r)
			case readinessChecks.Load() < until:
				refused.Add(1)
				statusResponse(http.StatusForbidden, "Forbidden")(w, r)
			default:
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, podJSON)
			}
		})
		return &rest.Config{Host: serving.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	}
	get := func(ctx context.Context, config *rest.Config) error {
		GinkgoHelper()
		client, err := NewFor(config, "bosh", time.Minute)
		Expect(err).NotTo(HaveOccurred())
		_, err = client.Pods.Get(ctx, "agent-1")
		return err
	}

	It("is repeated while the server says that it is not ready", func(ctx context.Context) {
		Expect(get(ctx, forbidUntil(htmlResponse(http.StatusInternalServerError), 2))).To(Succeed())
		Expect(readinessChecks.Load()).To(BeEquivalentTo(2))
	})

	It("is repeated once when the server has become ready meanwhile", func(ctx context.Context) {
		ready := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
		Expect(get(ctx, forbidUntil(ready, 1))).To(Succeed())
		Expect(refused.Load()).To(BeEquivalentTo(1))
	})

	It("is repeated for a while when nobody may ask whether the server is ready, as in its first second", func(ctx context.Context) {
		Expect(get(ctx, forbidUntil(statusResponse(http.StatusForbidden, "Forbidden"), 2))).To(Succeed())
	})

	It("by way of a proxy that has its own reasons is not asked about", func(ctx context.Context) {
		var requestCount atomic.Int32
		server := startServer(func(w http.ResponseWriter, r *http.Request) {
			requestCount.Add(1)
			htmlResponse(http.StatusForbidden)(w, r)
		})
		Expect(get(ctx, &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})).To(MatchError(ErrRefused))
		Expect(requestCount.Load()).To(BeEquivalentTo(1))
	})

	DescribeTable("is forbidden for good when the server answers that question with", func(ctx context.Context, readiness http.HandlerFunc) {
		Expect(get(ctx, forbidUntil(readiness, 2))).To(MatchError(ErrRefused))
		Expect(readinessChecks.Load()).To(BeEquivalentTo(1))
		Expect(refused.Load()).To(BeEquivalentTo(2), "the refusal that came before the question may have been of a server that had just started")
	},
		Entry("yes", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })),
		Entry("what a proxy says of paths that it does not know", htmlResponse(http.StatusNotFound)),
		Entry("a refusal of the credentials", statusResponse(http.StatusUnauthorized, "Unauthorized")),
	)
})
