package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestWeb(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "web")
}

// serve serves the handler until the test ends, and returns its host and port.
func serve(handler http.Handler) string {
	server := httptest.NewServer(handler)
	DeferCleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func get(ctx SpecContext, host, path string) (status int, body string) {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, http.NoBody)
	Expect(err).NotTo(HaveOccurred())
	answer, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	Expect(err).NotTo(HaveOccurred())
	return answer.StatusCode, string(content)
}

var _ = Describe("A router", func() {
	It("passes requests on to the apps, in turn", func(ctx SpecContext) {
		host := serve(router([]string{serve(app("app/0")), serve(app("app/1"))}))
		var said []string
		for range 4 {
			_, body := get(ctx, host, "/")
			said = append(said, body)
		}
		Expect(said).To(Equal([]string{"hello from app/1\n", "hello from app/0\n", "hello from app/1\n", "hello from app/0\n"}))
	})

	It("serves, also while no app does", func(ctx SpecContext) {
		gone := httptest.NewServer(http.NotFoundHandler())
		gone.Close()
		host := serve(router([]string{strings.TrimPrefix(gone.URL, "http://")}))
		status, _ := get(ctx, host, "/")
		Expect(status).To(Equal(http.StatusBadGateway))
		status, _ = get(ctx, host, "/healthz")
		Expect(status).To(Equal(http.StatusOK))
	})
})

var _ = Describe("The program", func() {
	It("says what it takes", func() {
		Expect(run([]string{"app", ":0"})).To(MatchError(ContainSubstring("app ADDRESS NAME")))
		Expect(run([]string{"other", ":0", "x"})).To(MatchError(ContainSubstring("router ADDRESS HOST:PORT")))
	})
})
