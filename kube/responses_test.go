package kube

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// startServer starts a server of HTTP/2 with TLS, like an API server.
func startServer(answer http.HandlerFunc) *httptest.Server {
	server := httptest.NewUnstartedServer(answer)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that are meant to fail
	server.StartTLS()
	DeferCleanup(server.Close)
	return server
}

// getPod gets a Pod from the server, once, and returns the error.
func getPod(ctx context.Context, server *httptest.Server, clusterSettings string) error {
	GinkgoHelper()
	client, err := New(Options{Kubeconfig: fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: it, contexts: [{name: it, context: {cluster: it, namespace: bosh}}],
		clusters: [{name: it, cluster: {server: %q, %s}}]}`, server.URL, clusterSettings)}, 0)
	Expect(err).NotTo(HaveOccurred())
	_, err = client.Pods.Get(ctx, "agent-1")
	return err
}

// trustedCA returns the cluster settings of a kubeconfig that trust the server's certificate.
func trustedCA(server *httptest.Server) string {
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return "certificate-authority-data: " + base64.StdEncoding.EncodeToString(own)
}

func statusResponse(code int, reason string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":%q,"code":%d}`, reason, code)
	}
}

func htmlResponse(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>no", code) }
}

// truncatedResponse closes the connection in the middle of an answer.
func truncatedResponse(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"kind":"Pod",`)
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// expectRequestError checks the kinds of a request's error, and by its cause whether the request would be repeated.
func expectRequestError(err error, retried bool, want []error) {
	GinkgoHelper()
	Expect(matchingKinds(err)).To(ConsistOf(want), "%v", err)
	var failed *Error
	Expect(errors.As(err, &failed)).To(BeTrue())
	Expect(isTransient(failed.Err)).To(Equal(retried), "repeated: %v", err)
}

// The tables in errors_test.go assume which errors client-go creates for answers. These specs check that with a server.
var _ = Describe("A server's answer", func() {
	DescribeTable("is recognized as one of Kubernetes or of a proxy", func(ctx context.Context, answer http.HandlerFunc, retried bool, want ...error) {
		server := startServer(answer)
		expectRequestError(getPod(ctx, server, trustedCA(server)), retried, want)
	},
		Entry("no such Pod", statusResponse(http.StatusNotFound, "NotFound"), final, ErrNotFound),
		Entry("no such path", htmlResponse(http.StatusNotFound), final, ErrNotServed),
		Entry("unauthorized", statusResponse(http.StatusUnauthorized, "Unauthorized"), final, ErrUnauthorized, ErrRefused),
		Entry("unauthorized by a proxy", htmlResponse(http.StatusUnauthorized), final, ErrUnauthorized, ErrRefused),
		Entry("forbidden", statusResponse(http.StatusForbidden, "Forbidden"), final, ErrRefused),
		Entry("forbidden by a proxy", htmlResponse(http.StatusForbidden), final, ErrRefused),
		Entry("failed", statusResponse(http.StatusInternalServerError, "InternalError"), repeated, ErrUnreachable),
		Entry("failed in a proxy", htmlResponse(http.StatusInternalServerError), repeated, ErrUnreachable),
		Entry("not reached by a proxy", htmlResponse(http.StatusBadGateway), repeated, ErrUnreachable),
		Entry("unavailable", statusResponse(http.StatusServiceUnavailable, "ServiceUnavailable"), repeated, ErrUnreachable),
		Entry("unavailable for a proxy", htmlResponse(http.StatusServiceUnavailable), repeated, ErrUnreachable),
		Entry("truncated", http.HandlerFunc(truncatedResponse), repeated, ErrUnreachable),
	)

	It("is transient if it is truncated over HTTP/1.1", func(ctx context.Context) {
		server := httptest.NewTLSServer(http.HandlerFunc(truncatedResponse))
		DeferCleanup(server.Close)
		expectRequestError(getPod(ctx, server, trustedCA(server)), repeated, []error{ErrUnreachable})
	})

	It("is transient if it is missing because the server is gone", func(ctx context.Context) {
		server := startServer(htmlResponse(http.StatusOK))
		server.Close()
		expectRequestError(getPod(ctx, server, trustedCA(server)), repeated, []error{ErrUnreachable})
	})

	It("is final if the certificate is of an unknown authority", func(ctx context.Context) {
		expectRequestError(getPod(ctx, startServer(htmlResponse(http.StatusOK)), ""), final, []error{ErrUnreachable})
	})

	It("is final if the certificate is for another name", func(ctx context.Context) {
		server := startServer(htmlResponse(http.StatusOK))
		settings := trustedCA(server)
		server.URL = strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
		expectRequestError(getPod(ctx, server, settings), final, []error{ErrUnreachable})
	})

	It("is ErrUnauthorized if the server, such as a load balancer, requires a client certificate", func(ctx context.Context) {
		server := httptest.NewUnstartedServer(htmlResponse(http.StatusOK))
		server.EnableHTTP2 = true
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
		server.StartTLS()
		DeferCleanup(server.Close)
		var err error
		Eventually(func() error { // the connection may break before the TLS alert is read, and that error is transient
			err = getPod(ctx, server, trustedCA(server))
			return err
		}).WithContext(ctx).Should(MatchError(ErrUnauthorized))
		expectRequestError(err, final, []error{ErrUnauthorized, ErrRefused})
		Expect(err).To(MatchError(And(ContainSubstring("the user of the kubeconfig has no credentials"), ContainSubstring("certificate required"))))
	})

	It("is not awaited after the context is canceled", func(ctx context.Context) {
		server := startServer(htmlResponse(http.StatusOK))
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		expectRequestError(getPod(ctx, server, trustedCA(server)), final, []error{ErrCanceled})
	})
})
