package kube

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// unsentError is an error that net/http returned before it looked up or contacted a server, for example about a header or a proxy. The
// same request fails again.
type unsentError struct{ err error }

func (e *unsentError) Error() string { return e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

func isUnsent(err error) bool {
	_, ok := errors.AsType[*unsentError](err)
	return ok
}

// markUnsent returns a transport that marks the errors of requests that were not sent.
func markUnsent(next http.RoundTripper) http.RoundTripper { return unsentMarker{next} }

type unsentMarker struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (m unsentMarker) RoundTrip(request *http.Request) (*http.Response, error) {
	var tried atomic.Bool
	ctx := httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{
		DNSStart:     func(httptrace.DNSStartInfo) { tried.Store(true) },
		ConnectStart: func(string, string) { tried.Store(true) },
		GotConn:      func(httptrace.GotConnInfo) { tried.Store(true) },
	})
	response, err := m.RoundTripper.RoundTrip(request.WithContext(ctx))
	if err == nil || tried.Load() || ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return response, err
	}
	if _, isNetwork := errors.AsType[net.Error](err); isNetwork {
		return response, err
	}
	return response, &unsentError{err}
}

// WrappedRoundTripper lets client-go find the transport below, for example to close its connections.
func (m unsentMarker) WrappedRoundTripper() http.RoundTripper { return m.RoundTripper }
