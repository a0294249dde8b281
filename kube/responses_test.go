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
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
)

// startServer starts an HTTP/2 server with TLS, like an API server.
func startServer(handler http.HandlerFunc) *httptest.Server {
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that are meant to fail
	server.StartTLS()
	DeferCleanup(server.Close)
	return server
}

// newTestClient returns a client for the server that retries once. clusterSettings are added to the cluster in its kubeconfig.
func newTestClient(server *httptest.Server, clusterSettings string) *Client {
	GinkgoHelper()
	kubeconfig := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: it, contexts: [{name: it, context: {cluster: it}}],
		clusters: [{name: it, cluster: {server: %q, %s}}]}`, server.URL, clusterSettings)
	client, err := New(Options{Kubeconfig: kubeconfig}, "test", 0)
	Expect(err).NotTo(HaveOccurred())
	return client
}

// getPod requests a Pod once, and returns the error.
func getPod(ctx context.Context, server *httptest.Server, clusterSettings string) error {
	GinkgoHelper()
	_, err := newTestClient(server, clusterSettings).Pods.Get(ctx, "web")
	return err
}

// trustServer returns cluster settings that trust the server's certificate.
func trustServer(server *httptest.Server) string {
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return "certificate-authority-data: " + base64.StdEncoding.EncodeToString(certificate)
}

// restConfig returns settings for connections to the server.
func restConfig(server *httptest.Server) *rest.Config {
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: certificate}}
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

// truncatedResponse closes the connection in the middle of a response.
func truncatedResponse(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"kind":"Pod",`)
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// expectRequestError checks the kinds of err, and whether its cause is retriable.
func expectRequestError(err error, isRetriable bool, kinds []error) {
	GinkgoHelper()
	Expect(matchingKinds(err)).To(ConsistOf(kinds), "%v", err)
	var failed *Error
	Expect(errors.As(err, &failed)).To(BeTrue())
	Expect(isTransient(failed.Err)).To(Equal(isRetriable), "retriable: %v", err)
}

// The tables in errors_test.go assume how client-go translates responses into errors. These specs verify that with a real server.
var _ = Describe("A server's response", func() {
	DescribeTable("is attributed to the API server or to a proxy", func(ctx context.Context, handler http.HandlerFunc, isRetriable bool, kinds ...error) {
		server := startServer(handler)
		expectRequestError(getPod(ctx, server, trustServer(server)), isRetriable, kinds)
	},
		Entry("Pod not found", statusResponse(http.StatusNotFound, "NotFound"), final, ErrNotFound),
		Entry("path not found", htmlResponse(http.StatusNotFound), final, ErrNotServed),
		Entry("unauthorized", statusResponse(http.StatusUnauthorized, "Unauthorized"), final, ErrUnauthorized, ErrDenied),
		Entry("unauthorized by a proxy", htmlResponse(http.StatusUnauthorized), final, ErrUnauthorized, ErrDenied),
		Entry("forbidden", statusResponse(http.StatusForbidden, "Forbidden"), final, ErrDenied),
		Entry("forbidden by a proxy", htmlResponse(http.StatusForbidden), final, ErrDenied),
		Entry("internal error", statusResponse(http.StatusInternalServerError, "InternalError"), retriable, ErrUnreachable),
		Entry("internal error of a proxy", htmlResponse(http.StatusInternalServerError), retriable, ErrUnreachable),
		Entry("bad gateway", htmlResponse(http.StatusBadGateway), retriable, ErrUnreachable),
		Entry("service unavailable", statusResponse(http.StatusServiceUnavailable, "ServiceUnavailable"), retriable, ErrUnreachable),
		Entry("service unavailable from a proxy", htmlResponse(http.StatusServiceUnavailable), retriable, ErrUnreachable),
		Entry("truncated", http.HandlerFunc(truncatedResponse), retriable, ErrUnreachable),
	)

	It("is retriable if it is truncated over HTTP/1.1", func(ctx context.Context) {
		server := httptest.NewTLSServer(http.HandlerFunc(truncatedResponse))
		DeferCleanup(server.Close)
		expectRequestError(getPod(ctx, server, trustServer(server)), retriable, []error{ErrUnreachable})
	})

	It("is final if the request cannot be sent", func(ctx context.Context) {
		client, err := NewForConfig(&rest.Config{Host: "https://127.0.0.1:1", BearerToken: "s3cret\n"}, "default", time.Hour)
		Expect(err).NotTo(HaveOccurred())
		_, err = client.Pods.Get(ctx, "web")
		expectRequestError(err, final, []error{ErrUnsent})
		Expect(err).NotTo(MatchError(ContainSubstring("s3cret")))
	})

	It("is retriable if the server is down", func(ctx context.Context) {
		server := startServer(htmlResponse(http.StatusOK))
		server.Close()
		expectRequestError(getPod(ctx, server, trustServer(server)), retriable, []error{ErrUnreachable})
	})

	It("is awaited although a connection could not be opened in time", func(ctx context.Context) {
		server := startServer(statusResponse(http.StatusNotFound, "NotFound"))
		config, dials := restConfig(server), 0
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials++; dials < 3 {
				return (&net.Dialer{Timeout: time.Nanosecond}).DialContext(ctx, network, address)
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		client, err := NewForConfig(config, "default", time.Minute)
		Expect(err).NotTo(HaveOccurred())
		_, err = client.Pods.Get(ctx, "web")
		Expect(err).To(MatchError(ErrNotFound))
	})

	It("is awaited once more although the time for retries passed before the connection was lost", func(ctx context.Context) {
		requests := 0
		server := startServer(func(w http.ResponseWriter, r *http.Request) {
			if requests++; requests == 1 {
				truncatedResponse(w, r)
			}
			statusResponse(http.StatusNotFound, "NotFound")(w, r)
		})
		expectRequestError(getPod(ctx, server, trustServer(server)), final, []error{ErrNotFound})
	})

	It("is final if the certificate is from an unknown authority", func(ctx context.Context) {
		expectRequestError(getPod(ctx, startServer(htmlResponse(http.StatusOK)), ""), final, []error{ErrUnreachable})
	})

	It("is final if the certificate is for another name", func(ctx context.Context) {
		server := startServer(htmlResponse(http.StatusOK))
		settings := trustServer(server)
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
		Eventually(func() error { // the connection may break before the client reads the TLS alert; that error is retriable
			err = getPod(ctx, server, trustServer(server))
			return err
		}).WithContext(ctx).Should(MatchError(ErrUnauthorized))
		expectRequestError(err, final, []error{ErrUnauthorized, ErrDenied})
		Expect(err).To(MatchError(And(ContainSubstring("the user of the kubeconfig has no credentials"), ContainSubstring("certificate required"))))
	})

	It("is not awaited if the context is canceled", func(ctx context.Context) {
		server := startServer(htmlResponse(http.StatusOK))
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		expectRequestError(getPod(ctx, server, trustServer(server)), final, []error{ErrCanceled})
	})
})

var _ = Describe("A warning of the API server", func() {
	It("is passed to OnWarning", func(ctx context.Context) {
		server := startServer(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Warning", `299 - "spec.externalIPs is deprecated"`)
			statusResponse(http.StatusNotFound, "NotFound")(w, r)
		})
		var received []string
		kubeconfig := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: it, contexts: [{name: it, context: {cluster: it}}],
			clusters: [{name: it, cluster: {server: %q, %s}}]}`, server.URL, trustServer(server))
		client, err := New(Options{Kubeconfig: kubeconfig, OnWarning: func(text string) { received = append(received, text) }}, "test", 0)
		Expect(err).NotTo(HaveOccurred())
		_, err = client.Services.Get(ctx, "web")
		Expect(err).To(MatchError(ErrNotFound))
		Expect(received).To(Equal([]string{"spec.externalIPs is deprecated"}))
	})
})
