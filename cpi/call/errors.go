package call

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
)

// ErrorKind is the type of an error on the wire.
type ErrorKind string

// The kinds of errors that the director and the CLI know: lib/cloud/errors.rb of bosh-director, and
// cloud/errors.go of bosh-cli for the last.
const (
	CPIError         ErrorKind = "Bosh::Clouds::CpiError"
	CloudError       ErrorKind = "Bosh::Clouds::CloudError"
	NotSupported     ErrorKind = "Bosh::Clouds::NotSupported"
	NotImplemented   ErrorKind = "Bosh::Clouds::NotImplemented"
	VMNotFound       ErrorKind = "Bosh::Clouds::VMNotFound"
	VMCreationFailed ErrorKind = "Bosh::Clouds::VMCreationFailed"
	NetworkNotFound  ErrorKind = "Bosh::Clouds::NetworkNotFound"
	DiskNotFound     ErrorKind = "Bosh::Clouds::DiskNotFound"
	DiskNotAttached  ErrorKind = "Bosh::Clouds::DiskNotAttached"
	NoDiskSpace      ErrorKind = "Bosh::Clouds::NoDiskSpace"
	StemcellNotFound ErrorKind = "Bosh::Clouds::StemcellNotFound"
)

// Error is an error as BOSH knows it. bosh-cpi-go reads the type by a type assertion, so it has to be
// the outermost error; AsBOSH sees to that.
type Error struct {
	kind  ErrorKind
	retry bool
	err   error
}

func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns what the error was made of.
func (e *Error) Unwrap() error { return e.err }

// Type is the error's name on the wire.
func (e *Error) Type() string { return string(e.kind) }

// CanRetry tells the director to send the same create_vm again; it acts on it for VMCreationFailed
// alone.
func (e *Error) CanRetry() bool { return e.retry }

// Errorf returns an error of this kind.
func (k ErrorKind) Errorf(format string, args ...any) *Error {
	return &Error{kind: k, err: fmt.Errorf(format, args...)}
}

// Wrap returns the error as one of this kind, whatever kind it had. retry is what CanRetry returns.
func (k ErrorKind) Wrap(err error, retry bool) *Error {
	return &Error{kind: k, retry: retry, err: err}
}

// Is reports whether the error is of this kind.
func (k ErrorKind) Is(err error) bool {
	var known *Error
	return errors.As(err, &known) && known.kind == k
}

// Invalid is the answer to a request that can never succeed as it is; nothing was changed.
func Invalid(format string, args ...any) *Error { return CPIError.Errorf(format, args...) }

// NoVM is the answer about a VM that is not there.
func NoVM(cid string) *Error {
	return VMNotFound.Errorf("VM %s not found: there is no Pod of that name", cid)
}

// NoDisk is the answer about a disk that is not there.
func NoDisk(cid string) *Error {
	return DiskNotFound.Errorf("disk %s not found: there is no PersistentVolumeClaim of that name", cid)
}

// inUse is a refusal for the sake of who uses the disk.
type inUse struct{ error }

func (e inUse) Unwrap() error { return e.error }

// InUse marks the error as a refusal because somebody uses the disk.
func InUse(err *Error) error { return inUse{err} }

// IsInUse reports whether the error is so marked.
func IsInUse(err error) bool {
	var refused inUse
	return errors.As(err, &refused)
}

// IsTyped reports whether the error has a kind already.
func IsTyped(err error) bool {
	var known *Error
	return errors.As(err, &known)
}

// AsBOSH makes the error that leaves the CPI: one with a kind stays what it is, any other becomes a
// CloudError with a hint at what the operator can do.
func AsBOSH(err error) *Error {
	var known *Error
	switch {
	case errors.As(err, &known):
		return known.kind.Wrap(err, known.retry)
	case errors.Is(err, kube.ErrUnreachable):
		return CloudError.Errorf("the Kubernetes API server cannot be reached (check kubernetes.kubeconfig and the network between): %w", err)
	case errors.Is(err, kube.ErrNotServed):
		return CloudError.Errorf("what answers does not serve the Kubernetes API "+
			"(check the server's URL in kubernetes.kubeconfig, and proxies before it): %w", err)
	case errors.Is(err, kube.ErrNoCredentials):
		return CloudError.Errorf("the CPI has no credentials for the cluster (correct the user's entry in kubernetes.kubeconfig, "+
			"see docs/credentials.md): %w", err)
	case errors.Is(err, kube.ErrUnauthorized):
		return CloudError.Errorf("the Kubernetes API server does not know the CPI by its credentials (make new ones, "+
			"see docs/credentials.md; cpi -check tells how long they last): %w", err)
	case errors.Is(err, kube.ErrWebhook):
		return CloudError.Errorf("an admission webhook, which the cluster asks before it changes anything, failed "+
			"(check the webhook that the message names; kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations): %w", err)
	case errors.Is(err, kube.ErrRefused):
		return CloudError.Errorf("the Kubernetes API server refuses the request "+
			"(check the CPI's Role, quotas and admission policies of the namespace): %w", err)
	}
	return CloudError.Wrap(err, false)
}

// messageError says in the operator's words what an error means, and keeps the error.
type messageError struct {
	error
	message string
}

func (e *messageError) Error() string { return e.message + " (" + e.error.Error() + ")" }
func (e *messageError) Unwrap() error { return e.error }

// WithMessage returns the error with the operator's words before it.
func WithMessage(err error, message string) error { return &messageError{err, message} }

// ExplainTimeout adds to an error for lack of time what the cluster last reported of the Pod; any
// other error, and none, it returns as it is.
func (c *Call) ExplainTimeout(pod *corev1.Pod, err error, message string) error {
	if !errors.Is(err, kube.ErrTimeout) {
		return err
	}
	return WithMessage(err, message+": "+c.DiagnosePod(pod))
}

// DiagnosePod says what the cluster last reported of the Pod, even when the call's time is over.
func (c *Call) DiagnosePod(pod *corev1.Pod) string {
	detached, cancel := c.Detached(CleanupTimeout)
	defer cancel()
	return detached.DescribePod(detached.Ctx, pod)
}
