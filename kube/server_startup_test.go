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

const podJSON = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web"}}`

var _ = Describe("A request that the API server forbids", func() {
	var readinessChecks, forbidden *atomic.Int32
	// forbidUntil starts a server that forbids requests until it receives n requests for /readyz. readiness handles these.
	forbidUntil := func(readiness http.HandlerFunc, n int32) *rest.Config {
		readinessChecks, forbidden = new(atomic.Int32), new(atomic.Int32)
		server := startServer(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/readyz":
				readinessChecks.Add(1)
				readiness(w, r)
			case readinessChecks.Load() < n:
				forbidden.Add(1)
				statusResponse(http.StatusForbidden, "Forbidden")(w, r)
			default:
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, podJSON)
			}
		})
		return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	}
	get := func(ctx context.Context, config *rest.Config) error {
		GinkgoHelper()
		client, err := NewForConfig(config, "default", time.Minute)
		Expect(err).NotTo(HaveOccurred())
		_, err = client.Pods.Get(ctx, "web")
		return err
	}

	It("is retried while the server reports that it is not ready", func(ctx context.Context) {
		Expect(get(ctx, forbidUntil(htmlResponse(http.StatusInternalServerError), 2))).To(Succeed())
		Expect(readinessChecks.Load()).To(BeEquivalentTo(2))
	})

	It("is retried once if the server is ready by now", func(ctx context.Context) {
		ready := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
		Expect(get(ctx, forbidUntil(ready, 1))).To(Succeed())
		Expect(forbidden.Load()).To(BeEquivalentTo(1))
	})

	It("is retried for a while if /readyz is forbidden, too, as in a server's first second", func(ctx context.Context) {
		Expect(get(ctx, forbidUntil(statusResponse(http.StatusForbidden, "Forbidden"), 2))).To(Succeed())
	})

	It("is not retried if a proxy forbids it", func(ctx context.Context) {
		var requestCount atomic.Int32
		server := startServer(func(w http.ResponseWriter, r *http.Request) {
			requestCount.Add(1)
			htmlResponse(http.StatusForbidden)(w, r)
		})
		Expect(get(ctx, &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})).To(MatchError(ErrDenied))
		Expect(requestCount.Load()).To(BeEquivalentTo(1))
	})

	DescribeTable("is final if the response of /readyz is", func(ctx context.Context, readiness http.HandlerFunc) {
		Expect(get(ctx, forbidUntil(readiness, 2))).To(MatchError(ErrDenied))
		Expect(readinessChecks.Load()).To(BeEquivalentTo(1))
		Expect(forbidden.Load()).To(BeEquivalentTo(2), "the server may have been starting at the first request")
	},
		Entry("ok", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })),
		Entry("404 from a proxy", htmlResponse(http.StatusNotFound)),
		Entry("401", statusResponse(http.StatusUnauthorized, "Unauthorized")),
	)
})
