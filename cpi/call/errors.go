package call

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// ErrorKind is the type of an error in a response.
type ErrorKind string

// Error kinds of the BOSH protocol: those that a director recognizes (KNOWN_RPC_ERRORS in its external_cpi.rb).
const (
	CPIError         ErrorKind = "Bosh::Clouds::CpiError"
	CloudError       ErrorKind = "Bosh::Clouds::CloudError"
	NotSupported     ErrorKind = "Bosh::Clouds::NotSupported"
	NotImplemented   ErrorKind = "Bosh::Clouds::NotImplemented"
	VMNotFound       ErrorKind = "Bosh::Clouds::VMNotFound"
	VMCreationFailed ErrorKind = "Bosh::Clouds::VMCreationFailed"
	DiskNotFound     ErrorKind = "Bosh::Clouds::DiskNotFound"
	DiskNotAttached  ErrorKind = "Bosh::Clouds::DiskNotAttached"
	NoDiskSpace      ErrorKind = "Bosh::Clouds::NoDiskSpace"
)

// Error is an error with an ErrorKind and a code. bosh-cpi-go reads the kind with a type assertion, so the outermost error of a
// response must be an *Error: see AsBOSHError.
type Error struct {
	kind  ErrorKind
	code  string
	retry bool
	err   error
}

func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.err }

// Type returns the kind of the error as it appears in the response.
func (e *Error) Type() string { return string(e.kind) }

// CanRetry reports whether the director may retry the call. The director evaluates this only for VMCreationFailed.
func (e *Error) CanRetry() bool { return e.retry }

// Is reports whether the error has this kind.
func (k ErrorKind) Is(err error) bool {
	var typed *Error
	return errors.As(err, &typed) && typed.kind == k
}

// Code returns the name of the error's code, for example "disk-in-use".
func (e *Error) Code() string { return e.code }

// WithCode appends the code to the error's message: "disk d is attached to VM v; detach it first [disk-in-use]". If the message
// already ends with the code of a program that ran on a node, WithCode keeps that code, which is closer to the cause.
func (e *Error) WithCode() *Error {
	coded := *e
	if shown := codePattern.FindStringSubmatch(e.Error()); shown != nil {
		coded.code = shown[1]
	} else {
		coded.err = fmt.Errorf("%w [%s]", e.err, e.code)
	}
	return &coded
}

// codePattern matches the code at the end of a message.
var codePattern = regexp.MustCompile(`\[([a-z]+(?:-[a-z]+)+)\]$`)

// InvalidPropertyf returns an error with the code CodeInvalidProperty. The message must name the invalid key and the remedy.
func InvalidPropertyf(format string, args ...any) *Error {
	return CodeInvalidProperty.Errorf(format, args...)
}

// VMNotFoundError returns the error for a VM that does not exist.
func VMNotFoundError(cid string) *Error {
	return CodeVMNotFound.Errorf("VM %s not found: no VM Pod has this name", cid)
}

// DiskNotFoundError returns the error for a disk that does not exist.
func DiskNotFoundError(cid string) *Error {
	return CodeDiskNotFound.Errorf("disk %s not found: no PVC of a disk has this name", cid)
}

// DeleteVMCommand returns the BOSH command that deletes the VM, for messages. It also works for a VM that the director does not know.
// Without the name of a deployment, the command contains a placeholder.
func DeleteVMCommand(deployment, vmCID string) string {
	return fmt.Sprintf("`bosh -d %s delete-vm %s`", cmp.Or(deployment, "DEPLOYMENT"), vmCID)
}

// IsBOSHError reports whether the error is, or wraps, an *Error.
func IsBOSHError(err error) bool {
	var typed *Error
	return errors.As(err, &typed)
}

// clusterErrors are the codes, messages and remedies for failed requests to the cluster. The first matching kind applies, because
// ErrUnauthorized and ErrInvalid wrap ErrDenied.
var clusterErrors = []struct {
	kind            error
	code            Code
	message, remedy string
}{
	{kube.ErrUnreachable, CodeAPIUnreachable, "cannot reach the Kubernetes API server", "check kubernetes.kubeconfig and the network"},
	{kube.ErrNotServed, CodeAPINotKubernetes, "the server does not serve the Kubernetes API",
		"check the server in kubernetes.kubeconfig (https://…) and any proxies"},
	{kube.ErrNoCredentials, CodeCredentialsMissing, "the CPI has no credentials for the cluster", "correct the user in kubernetes.kubeconfig"},
	{kube.ErrUnauthorized, CodeCredentialsRejected, "the Kubernetes API server rejected the CPI's credentials",
		"correct or renew them; cpi -check shows when they expire"},
	{kube.ErrNoNamespace, CodeInvalidConfig, "the namespace of the CPI does not exist", "create it, or correct kubernetes.namespace"},
	{kube.ErrUnsent, CodeInvalidConfig, "no request to the Kubernetes API server was sent",
		"correct kubernetes.kubeconfig, or the proxy settings"},
	{kube.ErrInvalid, CodeRequestDenied, "the Kubernetes API server rejected an object as invalid",
		"correct the property or argument with this value"},
	{kube.ErrWebhook, CodeWebhookFailed, "an admission webhook of the cluster failed", "check the webhook that this message names"},
	{kube.ErrDenied, CodeRequestDenied, "the Kubernetes API server denied a request",
		"check the CPI's Role, and quotas, LimitRanges and admission policies of the namespace"},
}

// AsBOSHError converts err to the *Error of a response. If err wraps an *Error, the result has its kind and code. Otherwise AsBOSHError
// derives the code from the way in which the request to the cluster failed, and adds a remedy to the message.
func AsBOSHError(err error) *Error {
	if typed, ok := errors.AsType[*Error](err); ok {
		return &Error{kind: typed.kind, code: typed.code, retry: typed.retry, err: err}
	}
	for _, e := range clusterErrors {
		if errors.Is(err, e.kind) {
			return e.code.Errorf("%s: %w; %s", e.message, err, e.remedy)
		}
	}
	return CodeClusterError.Wrap(err, false)
}

// ClusterErrorMessage returns the message for a failed request to the cluster, without a remedy.
func ClusterErrorMessage(err error) string {
	for _, e := range clusterErrors {
		if errors.Is(err, e.kind) {
			return e.message + ": " + err.Error()
		}
	}
	return err.Error()
}

// WithMessage wraps err. The message of the result is "MESSAGE (ERR)".
func WithMessage(err error, message string) error { return fmt.Errorf("%s (%w)", message, err) }

// ExplainTimeout adds the code, the message, and the last reported state of the Pod to a timeout. It returns other errors, and nil,
// unchanged.
func (c *Call) ExplainTimeout(code Code, pod *corev1.Pod, err error, message string) error {
	if !errors.Is(err, kube.ErrTimeout) {
		return err
	}
	if unavailable := NodeImageError(pod); unavailable != nil {
		return unavailable
	}
	return code.Wrap(WithMessage(err, message+": "+c.DiagnosePod(pod)), false)
}

// DiagnosePod describes the last reported state of the Pod; see kube.Client.DiagnosePod. It also works after the deadline of the call.
func (c *Call) DiagnosePod(pod *corev1.Pod) string {
	detached, cancel := c.Detached(CleanupTimeout)
	defer cancel()
	return detached.Client.DiagnosePod(detached.Ctx, manifest.WithReadableResults(pod))
}
