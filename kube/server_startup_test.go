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
	// forbidUntil starts a server that forbids requests until /readyz, which readiness serves, was requested this many times.
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

	It("is repeated while the server reports that it is not ready", func(ctx context.Context) {
		Expect(get(ctx, forbidUntil(htmlResponse(http.StatusInternalServerError), 2))).To(Succeed())
		Expect(readinessChecks.Load()).To(BeEquivalentTo(2))
	})

	It("is repeated once if the server has become ready meanwhile", func(ctx context.Context) {
		ready := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
		Expect(get(ctx, forbidUntil(ready, 1))).To(Succeed())
		Expect(refused.Load()).To(BeEquivalentTo(1))
	})

	It("is repeated for a while if /readyz is forbidden, too, as in a server's first second", func(ctx context.Context) {
		Expect(get(ctx, forbidUntil(statusResponse(http.StatusForbidden, "Forbidden"), 2))).To(Succeed())
	})

	It("is not repeated if a proxy forbids it", func(ctx context.Context) {
		var requestCount atomic.Int32
		server := startServer(func(w http.ResponseWriter, r *http.Request) {
			requestCount.Add(1)
			htmlResponse(http.StatusForbidden)(w, r)
		})
		Expect(get(ctx, &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})).To(MatchError(ErrRefused))
		Expect(requestCount.Load()).To(BeEquivalentTo(1))
	})

	DescribeTable("is final if /readyz answers with", func(ctx context.Context, readiness http.HandlerFunc) {
		Expect(get(ctx, forbidUntil(readiness, 2))).To(MatchError(ErrRefused))
		Expect(readinessChecks.Load()).To(BeEquivalentTo(1))
		Expect(refused.Load()).To(BeEquivalentTo(2), "the first answer may have been that of a server that had just started")
	},
		Entry("ok", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })),
		Entry("404 of a proxy", htmlResponse(http.StatusNotFound)),
		Entry("401", statusResponse(http.StatusUnauthorized, "Unauthorized")),
	)
})
