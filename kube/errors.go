package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The kinds of an Error, for errors.Is.
var (
	// ErrNotFound: no object has that name.
	ErrNotFound = errors.New("not found")
	// ErrNotServed: the server does not know the request's path, because it does not serve this kind of object, or is not an
	// API server. Nothing is known about the object itself.
	ErrNotServed = errors.New("not served")
	// ErrExists: an object of that name exists.
	ErrExists = errors.New("already exists")
	// ErrConflict: the object does not have, or no longer has, the UID, resource version or values that the request requires.
	ErrConflict = errors.New("conflict")
	// ErrRefused: the API server rejects the request: a right is missing, a quota is exhausted, an admission policy denies
	// it, or a field is invalid.
	ErrRefused = errors.New("refused by the API server")
	// ErrUnauthorized: the API server rejects the credentials. It wraps ErrRefused.
	ErrUnauthorized = fmt.Errorf("%w: credentials not accepted", ErrRefused)
	// ErrNoCredentials: the kubeconfig's credential plugin is not installed, or fails. No request was sent.
	ErrNoCredentials = errors.New("no credentials")
	// ErrWebhook: an admission webhook that the API server has to call failed.
	ErrWebhook = errors.New("admission webhook failed")
	// ErrUnreachable: there is no connection to the API server, or it kept answering that it is unavailable.
	ErrUnreachable = errors.New("API server unreachable")
	// ErrCanceled: the context was canceled.
	ErrCanceled = errors.New("canceled")
	// ErrTimeout: the context's deadline passed before the request was done, or before the object reached the wanted state.
	ErrTimeout = errors.New("timed out")
)

// Error is a failed request: what was tried on which object, and why it failed. It wraps both Kind and Err.
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

// invalidNameError returns the error for a name that no object can have. No request is sent for such a name: it could cut
// off the request's path, or lead to another one.
func invalidNameError(action string) error {
	return &Error{Action: action, Kind: ErrNotFound, Err: errors.New("not a valid object name")}
}

// isFailedPatchTest reports whether a JSON patch could not be applied: a test operation fails, or an operation removes
// something that does not exist. The API server answers 422 without naming an object or a field, unlike for an invalid object
// (apiserver/pkg/endpoints/handlers/patch.go, jsonPatcher.applyJSPatch).
func isFailedPatchTest(err error) bool {
	var answer apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &answer) {
		return false
	}
	details := answer.Status().Details
	return details == nil || details.Kind == "" && len(details.Causes) == 0
}

// translate turns an error of Kubernetes' libraries into an *Error.
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
