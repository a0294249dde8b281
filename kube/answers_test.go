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

// serve serves HTTP/2 with TLS, as API servers do.
func serve(answer http.HandlerFunc) *httptest.Server {
	server := httptest.NewUnstartedServer(answer)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that are meant to fail
	server.StartTLS()
	DeferCleanup(server.Close)
	return server
}

// ask gets a Pod from the server, once, and returns the error.
func ask(ctx context.Context, server *httptest.Server, clusterSettings string) error {
	GinkgoHelper()
	client, err := New(Options{Kubeconfig: fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: it, contexts: [{name: it, context: {cluster: it, namespace: bosh}}],
		clusters: [{name: it, cluster: {server: %q, %s}}]}`, server.URL, clusterSettings)}, 0)
	Expect(err).NotTo(HaveOccurred())
	_, err = client.Pods.Get(ctx, "agent-1")
	return err
}

// trusting are the settings of a cluster whose certificate is the server's.
func trusting(server *httptest.Server) string {
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return "certificate-authority-data: " + base64.StdEncoding.EncodeToString(own)
}

func status(code int, reason string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":%q,"code":%d}`, reason, code)
	}
}

func page(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>no", code) }
}

// cut breaks off in the middle of an answer.
func cut(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"kind":"Pod",`)
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// expectAsked checks what a request's error is. Its cause tells whether it would be repeated.
func expectAsked(err error, again bool, want []error) {
	GinkgoHelper()
	Expect(kinds(err)).To(ConsistOf(want), "%v", err)
	var failed *Error
	Expect(errors.As(err, &failed)).To(BeTrue())
	Expect(transient(failed.Err)).To(Equal(again), "repeated: %v", err)
}

// What client-go makes of answers is its own affair: that it is what the tables above take it for is
// shown by asking a server.
var _ = Describe("A server's answer", func() {
	DescribeTable("is read as Kubernetes' or as somebody else's", func(ctx context.Context, answer http.HandlerFunc, again bool, want ...error) {
		server := serve(answer)
		expectAsked(ask(ctx, server, trusting(server)), again, want)
	},
		Entry("no such Pod", status(http.StatusNotFound, "NotFound"), final, ErrNotFound),
		Entry("no such path", page(http.StatusNotFound), final, ErrNotServed),
		Entry("not authorized", status(http.StatusUnauthorized, "Unauthorized"), final, ErrUnauthorized, ErrRefused),
		Entry("not authorized by a proxy", page(http.StatusUnauthorized), final, ErrUnauthorized, ErrRefused),
		Entry("forbidden", status(http.StatusForbidden, "Forbidden"), final, ErrRefused),
		Entry("forbidden by a proxy", page(http.StatusForbidden), final, ErrRefused),
		Entry("failed", status(http.StatusInternalServerError, "InternalError"), repeated, ErrUnreachable),
		Entry("a failed proxy", page(http.StatusInternalServerError), repeated, ErrUnreachable),
		Entry("a proxy that does not reach it", page(http.StatusBadGateway), repeated, ErrUnreachable),
		Entry("unavailable", status(http.StatusServiceUnavailable, "ServiceUnavailable"), repeated, ErrUnreachable),
		Entry("unavailable, says a proxy", page(http.StatusServiceUnavailable), repeated, ErrUnreachable),
		Entry("cut in its middle", http.HandlerFunc(cut), repeated, ErrUnreachable),
	)

	It("over HTTP/1.1 that is cut in its middle is asked for again", func(ctx context.Context) {
		server := httptest.NewTLSServer(http.HandlerFunc(cut))
		DeferCleanup(server.Close)
		expectAsked(ask(ctx, server, trusting(server)), repeated, []error{ErrUnreachable})
	})

	It("of a server that is gone is asked for again", func(ctx context.Context) {
		server := serve(page(http.StatusOK))
		server.Close()
		expectAsked(ask(ctx, server, trusting(server)), repeated, []error{ErrUnreachable})
	})

	It("under a certificate of an unknown authority is not asked for again", func(ctx context.Context) {
		expectAsked(ask(ctx, serve(page(http.StatusOK)), ""), final, []error{ErrUnreachable})
	})

	It("under a certificate for another name is not asked for again", func(ctx context.Context) {
		server := serve(page(http.StatusOK))
		settings := trusting(server)
		server.URL = strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
		expectAsked(ask(ctx, server, settings), final, []error{ErrUnreachable})
	})

	It("that wants a client certificate, as a load balancer may, is that the credentials are not accepted", func(ctx context.Context) {
		server := httptest.NewUnstartedServer(page(http.StatusOK))
		server.EnableHTTP2 = true
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
		server.StartTLS()
		DeferCleanup(server.Close)
		var err error
		Eventually(func() error { // a connection may break before its end is read, and such a request is repeated
			err = ask(ctx, server, trusting(server))
			return err
		}).WithContext(ctx).Should(MatchError(ErrUnauthorized))
		expectAsked(err, final, []error{ErrUnauthorized, ErrRefused})
		Expect(err).To(MatchError(And(ContainSubstring("the kubeconfig's user has no credentials"), ContainSubstring("certificate required"))))
	})

	It("is not waited for when the call has ended", func(ctx context.Context) {
		server := serve(page(http.StatusOK))
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		expectAsked(ask(ctx, server, trusting(server)), final, []error{ErrCanceled})
	})
})
