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
	var lost *url.Error
	var stream http2.StreamError
	return errors.As(err, &lost) || errors.As(err, &stream) || errors.Is(err, io.ErrUnexpectedEOF)
}

// transient reports whether the same request may well succeed a moment later: the connection broke,
// or the API server (or its etcd) says that it cannot serve now. client-go itself repeats only GETs
// after a broken connection, and other answers only when they carry a Retry-After header.
func transient(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var unknownAuthority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verification *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case isMissingProgram(err), refusesCertificate(err):
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

// turns spaces the attempts where another call is at the same object: short at first, since such calls mostly take
// turns, and longer where they do not, for example because a finalizer keeps the object.
func turns() wait.Backoff {
	return wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 30, Cap: 3 * time.Second}
}

// Turns returns a function that waits before the next attempt where another call, or the cluster, changes the same object: at
// first shortly, then longer. It returns false when the context ended first.
func Turns() func(context.Context) bool {
	pause := turns()
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

// repetition is how requests are repeated.
type repetition struct {
	// patience is for how long, while the API server cannot be reached.
	patience time.Duration
	// renewed: something else renews the credentials. Those that are not accepted any more have a successor, with which the
	// request is repeated, once.
	renewed bool
	// starting reports whether an API server refuses only because it has just started; nil if nobody can say.
	starting func(ctx context.Context, since time.Time) bool
}

// retry repeats a request that may be repeated until it succeeds, fails for good, or the outage has
// lasted longer than patience.
//
// Every request of this package may be repeated: names are deterministic (a second POST returns
// ErrExists), deletions carry a UID, patches set absolute values.
func retry[R any](ctx context.Context, how repetition, request func(context.Context) (R, error)) (R, error) {
	return retryIf(ctx, how, transient, request)
}

// retryCreate is retry for the creation of an object. A Conflict, which speaks of another object there, comes from
// the quota of the namespace, when many creations at once change what is used of it.
func retryCreate[R any](ctx context.Context, how repetition, request func(context.Context) (R, error)) (R, error) {
	return retryIf(ctx, how, func(err error) bool { return transient(err) || apierrors.IsConflict(err) }, request)
}

func retryIf[R any](
	ctx context.Context, how repetition, may func(error) bool, request func(context.Context) (R, error)) (R, error) {

	started := time.Now()
	pause := backoff()
	var refused time.Time
	for answers := false; ; {
		result, err := request(ctx)
		if how.renewed && apierrors.IsUnauthorized(err) {
			how.renewed = false
			continue
		}
		if err == nil || time.Since(started) > how.patience {
			return result, err
		}
		if how.starting != nil && isOwnRefusal(err) && !answers {
			if refused.IsZero() {
				refused = time.Now()
			}
			// One that is ready now may not have been so when it refused.
			answers = !how.starting(ctx, refused)
		} else if !may(err) {
			return result, err
		}
		if !sleep(ctx, pause.Step()) {
			return result, err
		}
	}
}
