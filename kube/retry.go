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

// isTransport reports whether the request or its answer was lost in transit, even in the middle of the answer's body.
func isTransport(err error) bool {
	var urlErr *url.Error
	var stream http2.StreamError
	return errors.As(err, &urlErr) || errors.As(err, &stream) || errors.Is(err, io.ErrUnexpectedEOF)
}

// isTransient reports whether the same request may succeed a moment later: the connection broke, or the API server (or its
// etcd) answered that it is unavailable. client-go itself repeats only GETs after a broken connection, and after an answer only
// if that has a Retry-After header.
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
	if apierrors.IsUnexpectedServerError(err) { // the body is not a Status of Kubernetes: the answer of a proxy, for example
		var answer apierrors.APIStatus
		return errors.As(err, &answer) && answer.Status().Code >= http.StatusInternalServerError
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err)
}

// backoff returns the pauses between attempts: short at first, since most outages are a restart of the API server.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 30, Cap: 3 * time.Second}
}

// conflictBackoff returns the pauses between attempts while another call changes the same object: short at first, since such
// calls usually alternate, and longer later, for example while a finalizer delays the object's deletion.
func conflictBackoff() wait.Backoff {
	return wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 30, Cap: 3 * time.Second}
}

// NewConflictBackoff returns a function that pauses before the next attempt while another call, or the cluster, changes the same
// object: 10 ms at first, then up to 3 s. The function returns false if the context ends before the end of the pause.
func NewConflictBackoff() func(context.Context) bool {
	pause := conflictBackoff()
	return func(ctx context.Context) bool { return sleep(ctx, pause.Step()) }
}

// sleep pauses, and returns false if the context ends before the end of the pause.
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

// retryPolicy determines which requests are repeated, and for how long.
type retryPolicy struct {
	// timeout is how long requests are repeated while the API server cannot be reached.
	timeout time.Duration
	// autoRenewed means that the kubelet or a credential plugin renews the credentials. After ErrUnauthorized, a request is
	// repeated once, with the renewed ones.
	autoRenewed bool
	// isStarting reports whether an API server that forbids requests may do so only because it has just started; nil: never.
	isStarting func(ctx context.Context, since time.Time) bool
}

// retry repeats a request until it succeeds, fails with an error that is not transient, or policy.timeout has passed.
//
// Every request of this package may be repeated: names are deterministic (a second POST returns ErrExists), deletions carry a
// UID, and patches set absolute values.
func retry[R any](ctx context.Context, policy retryPolicy, request func(context.Context) (R, error)) (R, error) {
	return retryIf(ctx, policy, isTransient, request)
}

// retryCreate is retry for the creation of an object. It also repeats a request after a Conflict, which is about another object:
// the namespace's ResourceQuota, when many creations update its usage at the same time.
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
			// A server that is ready now may not have been ready when it answered: repeat the request once more.
			ready = !policy.isStarting(ctx, refused)
		} else if !isRetryable(err) {
			return result, err
		}
		if !sleep(ctx, pause.Step()) {
			return result, err
		}
	}
}
