package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestWeb(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "web")
}

// serve serves the handler until the spec ends, and returns its host and port.
func serve(handler http.Handler) string {
	server := httptest.NewServer(handler)
	DeferCleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func get(ctx SpecContext, host, path string) (status int, body string) {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, http.NoBody)
	Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(content)
}

// newApp returns an app that counts its requests in a new file.
func newApp(name string) http.Handler {
	return app(name, filepath.Join(GinkgoT().TempDir(), "requests"))
}

var _ = Describe("An app", func() {
	It("continues to count its requests after a restart", func(ctx SpecContext) {
		file := filepath.Join(GinkgoT().TempDir(), "requests")
		get(ctx, serve(app("app/0", file)), "/")
		_, body := get(ctx, serve(app("app/0", file)), "/")
		Expect(body).To(Equal("hello from app/0: request 2\n"))
	})

	It("responds with an error if it cannot write the file", func(ctx SpecContext) {
		status, body := get(ctx, serve(app("app/0", filepath.Join(GinkgoT().TempDir(), "missing/requests"))), "/")
		Expect(status).To(Equal(http.StatusInternalServerError))
		Expect(body).To(ContainSubstring("no such file or directory"))
	})
})

var _ = Describe("A router", func() {
	It("forwards requests to the apps in turn", func(ctx SpecContext) {
		host := serve(router(ctx, []string{serve(newApp("app/0")), serve(newApp("app/1"))}))
		var bodies []string
		for range 3 {
			_, body := get(ctx, host, "/")
			bodies = append(bodies, body)
		}
		Expect(bodies).To(Equal([]string{"hello from app/1: request 1\n", "hello from app/0: request 1\n", "hello from app/1: request 2\n"}))
	})

	It("serves its health check even if no app responds", func(ctx SpecContext) {
		stopped := httptest.NewServer(http.NotFoundHandler())
		stopped.Close()
		host := serve(router(ctx, []string{strings.TrimPrefix(stopped.URL, "http://")}))
		status, _ := get(ctx, host, "/")
		Expect(status).To(Equal(http.StatusBadGateway))
		status, _ = get(ctx, host, "/healthz")
		Expect(status).To(Equal(http.StatusOK))
	})

	It("is unhealthy while it drains, and still forwards requests", func(ctx SpecContext) {
		draining, drain := context.WithCancel(ctx)
		host := serve(router(draining, []string{serve(newApp("app/0"))}))
		drain()
		status, _ := get(ctx, host, "/healthz")
		Expect(status).To(Equal(http.StatusServiceUnavailable))
		_, body := get(ctx, host, "/")
		Expect(body).To(Equal("hello from app/0: request 1\n"))
	})
})

var _ = Describe("The program", func() {
	It("explains its arguments", func() {
		Expect(run([]string{"app", ":0"})).To(MatchError(ContainSubstring("app ADDRESS NAME FILE")))
		Expect(run([]string{"other", ":0", "x"})).To(MatchError(ContainSubstring("router ADDRESS HOST:PORT")))
	})
})
