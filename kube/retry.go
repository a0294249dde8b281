package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// isTransport reports whether the request or its answer was lost on the way, even in the middle of the
// answer's body.
func isTransport(err error) bool {
	var urlErr *url.Error
	var stream http2.StreamError
	return errors.As(err, &urlErr) || errors.As(err, &stream) || errors.Is(err, io.ErrUnexpectedEOF)
}

// isTransient reports whether the same request may well succeed a moment later: the connection broke,
// or the API server (or its etcd) says that it cannot serve now. client-go itself repeats only GETs
// after a broken connection, and other answers only when they carry a Retry-After header.
func isTransient(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var unknownAuthority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verification *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case isMissingCredentialPlugin(err), isClientCertRejected(err):
		return false
	case errors.As(err, &unknownAuthority), errors.As(err, &hostname), errors.As(err, &invalid),
		errors.As(err, &verification), errors.As(err, &record):
		return false
	case isTransport(err):
		return true
	}
	if apierrors.IsUnexpectedServerError(err) { // its body is not of Kubernetes: a proxy's, for example
		var answer apierrors.APIStatus
		return errors.As(err, &answer) && answer.Status().Code >= http.StatusInternalServerError
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err)
}

// backoff spaces the attempts: quick at first, since most outages are a restarted API server.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 30, Cap: 3 * time.Second}
}

// conflictBackoff spaces the attempts where another call is at the same object: short at first, since such calls mostly take
// turns, and longer where they do not, for example because a finalizer keeps the object.
func conflictBackoff() wait.Backoff {
	return wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 30, Cap: 3 * time.Second}
}

// NewConflictBackoff returns a function that waits before the next attempt where another call, or the cluster, changes the same object: at
// first shortly, then longer. It returns false when the context ended first.
func NewConflictBackoff() func(context.Context) bool {
	pause := conflictBackoff()
	return func(ctx context.Context) bool { return sleep(ctx, pause.Step()) }
}

// sleep waits, and reports whether it could: not when the context ended first.
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

// retryPolicy is how requests are repeated.
type retryPolicy struct {
	// timeout is for how long, while the API server cannot be reached.
	timeout time.Duration
	// autoRenewed: something else renews the credentials. Those that are not accepted any more have a successor, with which the
	// request is repeated, once.
	autoRenewed bool
	// isStarting reports whether an API server refuses only because it has just started; nil if nobody can say.
	isStarting func(ctx context.Context, since time.Time) bool
}

// retry repeats a request that may be repeated until it succeeds, fails for good, or the outage has
// lasted longer than patience.
//
// Every request of this package may be repeated: names are deterministic (a second POST returns
// ErrExists), deletions carry a UID, patches set absolute values.
func retry[R any](ctx context.Context, policy retryPolicy, request func(context.Context) (R, error)) (R, error) {
	return retryIf(ctx, policy, isTransient, request)
}

// retryCreate is retry for the creation of an object. A Conflict, which speaks of another object there, comes from
// the quota of the namespace, when many creations at once change what is used of it.
func retryCreate[R any](ctx context.Context, policy retryPolicy, request func(context.Context) (R, error)) (R, error) {
	return retryIf(ctx, policy, func(err error) bool { return isTransient(err) || apierrors.IsConflict(err) }, request)
}

func retryIf[R any](
	ctx context.Context, policy retryPolicy, isRetryable func(error) bool, request func(context.Context) (R, error)) (R, error) {

	started := time.Now()
	pause := backoff()
	var refused time.Time
	for ready := false; ; {
		result, err := request(ctx)
		if policy.autoRenewed && apierrors.IsUnauthorized(err) {
			policy.autoRenewed = false
			continue
		}
		if err == nil || time.Since(started) > policy.timeout {
			return result, err
		}
		if policy.isStarting != nil && isAPIServerForbidden(err) && !ready {
			if refused.IsZero() {
				refused = time.Now()
			}
			// One that is ready now may not have been so when it refused.
			ready = !policy.isStarting(ctx, refused)
		} else if !isRetryable(err) {
			return result, err
		}
		if !sleep(ctx, pause.Step()) {
			return result, err
		}
	}
}
