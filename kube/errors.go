package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// What went wrong, for errors.Is.
var (
	// ErrNotFound: no object has that name.
	ErrNotFound = errors.New("not found")
	// ErrNotServed: the API server, or a proxy before it, does not know the request's path. It serves no
	// such kind of object, or is no API server: nothing is said of the object itself.
	ErrNotServed = errors.New("not served")
	// ErrExists: an object of that name is there already.
	ErrExists = errors.New("already exists")
	// ErrConflict: the object is not (or no longer) the one that was meant.
	ErrConflict = errors.New("conflict")
	// ErrRefused: the API server understood the request and will not do it: a right is missing,
	// a quota is used up, an admission policy denies it, a field is invalid.
	ErrRefused = errors.New("refused by the API server")
	// ErrUnauthorized: the API server does not accept the credentials. That is a refusal too: errors.Is
	// finds ErrRefused in it.
	ErrUnauthorized = fmt.Errorf("%w: credentials not accepted", ErrRefused)
	// ErrNoCredentials: the program that is to give the credentials is not there, or fails. Nothing was asked of the API server.
	ErrNoCredentials = errors.New("no credentials")
	// ErrWebhook: an admission webhook, which the API server has to ask, failed.
	ErrWebhook = errors.New("admission webhook failed")
	// ErrUnreachable: the API server did not answer, or kept answering that it cannot serve now.
	ErrUnreachable = errors.New("API server unreachable")
	// ErrCanceled: the call was told to end before it was done.
	ErrCanceled = errors.New("canceled")
	// ErrTimeout: the object did not reach the wanted state before the deadline.
	ErrTimeout = errors.New("timed out")
)

// Error is a failed request: what was tried on which object, and why it failed.
type Error struct {
	Action string // for example "create Pod bosh/agent-1"
	Kind   error  // one of the Err variables above, or nil
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %v", e.Action, e.Err)
}

func (e *Error) Unwrap() []error {
	if e.Kind == nil {
		return []error{e.Err}
	}
	return []error{e.Kind, e.Err}
}

// invalidNameError is the answer about an object whose name none can have. No request is sent for it: the name could end the
// request's path, or lead elsewhere.
func invalidNameError(action string) error {
	return &Error{Action: action, Kind: ErrNotFound, Err: errors.New("no object can have this name")}
}

// isFailedPatchTest reports whether a JSON patch could not be applied: a test operation does not hold, or what an operation
// removes does not exist. The API server answers 422 without naming an object or a field, unlike for an invalid object
// (apiserver/pkg/endpoints/handlers/patch.go, jsonPatcher.applyJSPatch).
func isFailedPatchTest(err error) bool {
	var answer apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &answer) {
		return false
	}
	details := answer.Status().Details
	return details == nil || details.Kind == "" && len(details.Causes) == 0
}

// translate is the one place where Kubernetes' errors become this package's.
func translate(action string, err error) error {
	if err == nil {
		return nil
	}
	var kind error
	switch {
	case errors.Is(err, context.Canceled):
		kind = ErrCanceled
	case isCredentialPluginError(err):
		kind = ErrNoCredentials
	case apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err):
		kind = ErrNotServed
	case apierrors.IsNotFound(err):
		kind = ErrNotFound
	case apierrors.IsAlreadyExists(err):
		kind = ErrExists
	case apierrors.IsConflict(err):
		kind = ErrConflict
	case apierrors.IsUnauthorized(err), isClientCertRejected(err):
		kind = ErrUnauthorized
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.IsMethodNotSupported(err):
		kind = ErrRefused
	case errors.Is(err, context.DeadlineExceeded):
		kind = ErrTimeout
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook"):
		kind = ErrWebhook
	case isTransient(err), isTransport(err):
		kind = ErrUnreachable
	}
	return &Error{Action: action, Kind: kind, Err: err}
}
