package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// isTransportError reports whether the request or its response was lost in transit, at the latest in the middle of the response body.
func isTransportError(err error) bool {
	var urlErr *url.Error
	var stream http2.StreamError
	return errors.As(err, &urlErr) || errors.As(err, &stream) || errors.Is(err, io.ErrUnexpectedEOF)
}

// isTransient reports whether the same request may succeed later, because the connection broke, or the API server or etcd is
// unavailable. client-go alone retries only GETs after a broken connection, and responses with a Retry-After header.
func isTransient(err error) bool {
	if isDialTimeout(err) {
		return true
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var untrusted *tls.CertificateVerificationError
	switch {
	case isUnsent(err), isCredentialPluginError(err), isClientCertRejected(err), isMissingQuota(err), isNotTLS(err),
		errors.As(err, &untrusted):
		return false
	case isTransportError(err):
		return true
	}
	if apierrors.IsUnexpectedServerError(err) { // the response is not from an API server, but from a proxy, for example
		var response apierrors.APIStatus
		return errors.As(err, &response) && response.Status().Code >= http.StatusInternalServerError
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err)
}

// isDialTimeout reports whether a connection to the API server, or to the proxy in front of it, could not be opened in time. Its error is
// also a [context.DeadlineExceeded], although no context ended.
func isDialTimeout(err error) bool {
	operation, ok := errors.AsType[*net.OpError](err)
	return ok && (operation.Op == "dial" || operation.Op == "proxyconnect") && operation.Timeout()
}

// isNotTLS reports whether the server at an https:// URL does not use TLS.
func isNotTLS(err error) bool {
	var record tls.RecordHeaderError
	return errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &record)
}

// backoff returns the pauses between attempts. The first ones are short, because most outages are restarts of the API server.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 30, Cap: 3 * time.Second}
}

// conflictBackoff returns the pauses between attempts while another client changes the same object. The first ones are short,
// because clients usually take turns. Later ones are longer, for example because a finalizer delays the object's deletion.
func conflictBackoff() wait.Backoff {
	return wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 30, Cap: 3 * time.Second}
}

// NewConflictBackoff returns a function that pauses before the next attempt while another client changes the same object: 10 ms at
// first, then up to 3 s. The function returns false if the context ends during the pause.
func NewConflictBackoff() func(context.Context) bool {
	pause := conflictBackoff()
	return func(ctx context.Context) bool { return sleep(ctx, pause.Step()) }
}

// sleep pauses, and returns false if the context ends during the pause.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// retryPolicy determines which requests are retried, and for how long.
type retryPolicy struct {
	// timeout is how long requests are retried while the API server is unreachable. A request is retried at least once, because a broken
	// connection may be noticed only after a longer time.
	timeout time.Duration
	// autoRenewed means that the kubelet or a credential plugin renews the credentials. Requests that fail with ErrUnauthorized
	// are retried once.
	autoRenewed bool
	// isStarting reports whether an API server that forbids requests since then may be starting up. It may be nil.
	isStarting func(ctx context.Context, since time.Time) bool
	// err is why there is no connection. Requests are not sent, and fail with this error.
	err error
}

// retry sends a request until it succeeds, fails with an error that is not transient, or policy.timeout passes.
//
// All requests of this package are idempotent: a second POST fails with ErrExists, because names are deterministic; deletions
// contain a UID; and patches set absolute values.
func retry[R any](ctx context.Context, policy retryPolicy, request func(context.Context) (R, error)) (R, error) {
	return retryIf(ctx, policy, isTransient, request)
}

// retryCreate is like retry, for creating an object. It also retries after a conflict, which is about the namespace's ResourceQuota:
// many creations at the same time update its usage.
func retryCreate[R any](ctx context.Context, policy retryPolicy, request func(context.Context) (R, error)) (R, error) {
	return retryIf(ctx, policy, func(err error) bool { return isTransient(err) || apierrors.IsConflict(err) }, request)
}

func retryIf[R any](
	ctx context.Context,
	policy retryPolicy,
	isRetriable func(error) bool,
	request func(context.Context) (R, error),
) (R, error) {
	if policy.err != nil {
		var none R
		return none, policy.err
	}
	started := time.Now()
	pause := backoff()
	var forbiddenSince time.Time
	ready := false
	for attempts := 1; ; attempts++ {
		result, err := request(ctx)
		if policy.autoRenewed && apierrors.IsUnauthorized(err) {
			policy.autoRenewed = false
			continue
		}
		if err == nil || attempts > 1 && time.Since(started) > policy.timeout {
			return result, err
		}
		if policy.isStarting != nil && isAPIServerForbidden(err) && !ready {
			if forbiddenSince.IsZero() {
				forbiddenSince = time.Now()
			}
			// A server that is ready now may not have been ready when it sent the response: retry once more.
			ready = !policy.isStarting(ctx, forbiddenSince)
		} else if !isRetriable(err) {
			return result, err
		}
		if !sleep(ctx, pause.Step()) {
			return result, err
		}
	}
}
