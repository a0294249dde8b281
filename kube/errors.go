package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kinds of an Error, for errors.Is.
var (
	// ErrNotFound means that no object has that name.
	ErrNotFound = errors.New("not found")
	// ErrNotServed means that the server does not know the request's path. It does not serve this kind of object, or is not an
	// API server. The object may exist.
	ErrNotServed = errors.New("not served")
	// ErrExists means that an object of that name exists.
	ErrExists = errors.New("already exists")
	// ErrConflict means that the object does not have the UID, resource version or values that the request requires.
	ErrConflict = errors.New("conflict")
	// ErrDenied means that the API server denied the request. The client lacks a permission, a quota is exhausted, or an admission
	// policy denies the request.
	ErrDenied = errors.New("rejected by the API server")
	// ErrInvalid means that a field of an object is not valid. It wraps ErrDenied.
	ErrInvalid = fmt.Errorf("%w: invalid", ErrDenied)
	// ErrUnauthorized means that the API server rejected the credentials. It wraps ErrDenied.
	ErrUnauthorized = fmt.Errorf("%w: credentials not accepted", ErrDenied)
	// ErrNoCredentials means that the kubeconfig's credential plugin is not installed, or failed. No request was sent.
	ErrNoCredentials = errors.New("no credentials")
	// ErrNoNamespace means that an object cannot be created, because the namespace does not exist. It wraps ErrNotFound.
	ErrNoNamespace = fmt.Errorf("%w: namespace", ErrNotFound)
	// ErrUnsent means that no request was sent, because a setting of the connection is not valid.
	ErrUnsent = errors.New("not sent")
	// ErrWebhook means that the API server failed to call an admission webhook.
	ErrWebhook = errors.New("admission webhook failed")
	// ErrUnreachable means that there is no connection to the API server, or that the server is unavailable.
	ErrUnreachable = errors.New("API server unreachable")
	// ErrCanceled means that the context was canceled.
	ErrCanceled = errors.New("canceled")
	// ErrTimeout means that the context's deadline passed.
	ErrTimeout = errors.New("timed out")
)

// Error is a failed request. It wraps both Kind and Err.
type Error struct {
	Action string // such as "create Pod default/web"
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

// invalidNameError returns the error for a name that no object can have. Such a name must not become part of a request's path.
func invalidNameError(action string) error {
	return &Error{Action: action, Kind: ErrNotFound, Err: errors.New("not a valid object name")}
}

// IgnoreNotFound returns nil if the error is ErrNotFound, and otherwise the error.
func IgnoreNotFound(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// isFailedPatchTest reports whether a JSON patch does not apply, because a test operation failed or a removed value does not
// exist. The API server then responds with 422, as for an invalid object, but names no object or field
// (apiserver/pkg/endpoints/handlers/patch.go, jsonPatcher.applyJSPatch).
func isFailedPatchTest(err error) bool {
	var response apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &response) {
		return false
	}
	details := response.Status().Details
	return details == nil || details.Kind == "" && len(details.Causes) == 0
}

// isOtherUID reports whether a patch with a UID was for another object of the same name. The API server then responds as for an attempt
// to change the UID.
func isOtherUID(err error) bool {
	cause, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	return ok && cause.Field == "metadata.uid"
}

// isMissingNamespace reports whether the namespace of an object does not exist. Only requests that create an object are rejected so.
func isMissingNamespace(err error) bool {
	var response apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &response) {
		return false
	}
	details := response.Status().Details
	return details != nil && details.Kind == "namespaces"
}

// isMissingQuota reports whether the API server rejected a Pod because the namespace has no ResourceQuota for its PriorityClass, which
// the server's configuration requires. The server then responds with 500 and without a reason
// (apiserver/pkg/admission/plugin/resourcequota, CheckRequest).
func isMissingQuota(err error) bool {
	const message = "insufficient quota to match these scopes"
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && strings.Contains(err.Error(), message)
}

// isMissingReference reports whether the API server forbids a Pod because an object that it refers to does not exist
// (plugin/pkg/admission/priority, /serviceaccount and /runtimeclass of k8s.io/kubernetes).
func isMissingReference(err error) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	isPart := func(text string) bool { return strings.Contains(err.Error(), text) }
	return isPart("no PriorityClass with name") || isPart("error looking up service account") || isPart("pod rejected: RuntimeClass")
}

// translate converts an error of a Kubernetes library to an *Error.
func translate(action string, err error) error {
	if err == nil {
		return nil
	}
	var kind error
	switch {
	case errors.Is(err, context.Canceled):
		kind = ErrCanceled
	case isDialTimeout(err):
		kind = ErrUnreachable
	case isCredentialPluginError(err), isTokenFileError(err):
		kind = ErrNoCredentials
	case isUnsent(err):
		kind = ErrUnsent
	case isNotTLS(err), (apierrors.IsNotFound(err) || apierrors.IsBadRequest(err)) && apierrors.IsUnexpectedServerError(err):
		kind = ErrNotServed
	case isMissingNamespace(err):
		kind = ErrNoNamespace
	case apierrors.IsNotFound(err):
		kind = ErrNotFound
	case apierrors.IsAlreadyExists(err):
		kind = ErrExists
	case apierrors.IsConflict(err), isOtherUID(err):
		kind = ErrConflict
	case apierrors.IsUnauthorized(err), isClientCertRejected(err), isAnonymousForbidden(err):
		kind = ErrUnauthorized
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), isMissingReference(err):
		kind = ErrInvalid
	case apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err), isMissingQuota(err):
		kind = ErrDenied
	case errors.Is(err, context.DeadlineExceeded):
		kind = ErrTimeout
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook"):
		kind = ErrWebhook
	case isTransient(err), isTransportError(err):
		kind = ErrUnreachable
	}
	return &Error{Action: action, Kind: kind, Err: err}
}
