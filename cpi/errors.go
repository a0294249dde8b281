package cpi

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
)

// Types of errors that the director and the CLI know.
const (
	typeCloudError     = "Bosh::Clouds::CloudError"
	typeCPIError       = "Bosh::Clouds::CpiError"
	typeNotImplemented = "Bosh::Clouds::NotImplemented"
	typeNotSupported   = "Bosh::Clouds::NotSupported"
	typeVMNotFound     = "Bosh::Clouds::VMNotFound"
	typeVMFailed       = "Bosh::Clouds::VMCreationFailed"
	typeNetNotFound    = "Bosh::Clouds::NetworkNotFound"
	typeDiskNotFound   = "Bosh::Clouds::DiskNotFound"
	typeNotAttached    = "Bosh::Clouds::DiskNotAttached"
	typeNoDiskSpace    = "Bosh::Clouds::NoDiskSpace"
	typeNoStemcell     = "Bosh::Clouds::StemcellNotFound"
)

// Error is an error as BOSH knows it. bosh-cpi-go reads the type by a type assertion, so it has to be
// the outermost error; the dispatcher sees to that.
type Error struct {
	kind  string
	retry bool
	err   error
}

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

// Type is the error's name on the wire.
func (e *Error) Type() string { return e.kind }

// CanRetry tells the director to send the same create_vm again; it acts on it for VMCreationFailed
// alone.
func (e *Error) CanRetry() bool { return e.retry }

func typed(kind, format string, args ...any) *Error {
	return &Error{kind: kind, err: fmt.Errorf(format, args...)}
}

// invalid is the answer to a request that can never succeed as it is; nothing was changed.
func invalid(format string, args ...any) *Error { return typed(typeCPIError, format, args...) }

func vmNotFound(cid string) *Error {
	return typed(typeVMNotFound, "VM %s not found: there is no Pod of that name", cid)
}

func diskNotFound(cid string) *Error {
	return typed(typeDiskNotFound, "disk %s not found: there is no PersistentVolumeClaim of that name", cid)
}

func isVMNotFound(err error) bool { return is(typeVMNotFound, err) }

func isDiskNotFound(err error) bool { return is(typeDiskNotFound, err) }

func is(kind string, err error) bool {
	var known *Error
	return errors.As(err, &known) && known.kind == kind
}

// asBOSH makes the error that leaves the CPI: one with a type stays what it is, any other becomes a
// CloudError with a hint at what the operator can do.
func asBOSH(err error) *Error {
	var known *Error
	switch {
	case errors.As(err, &known):
		return &Error{kind: known.kind, retry: known.retry, err: err}
	case errors.Is(err, kube.ErrUnreachable):
		return typed(typeCloudError, "the Kubernetes API server cannot be reached (check kubernetes.kubeconfig and the network between): %w", err)
	case errors.Is(err, kube.ErrNotServed):
		return typed(typeCloudError, "what answers does not serve the Kubernetes API (check the server's URL in kubernetes.kubeconfig, and proxies before it): %w", err)
	case errors.Is(err, kube.ErrRefused):
		return typed(typeCloudError, "the Kubernetes API server refuses the request (check the CPI's Role, quotas and admission policies of the namespace): %w", err)
	}
	return &Error{kind: typeCloudError, err: err}
}

// explained says in the operator's words what an error means, and keeps the error.
type explained struct {
	error
	words string
}

func (e *explained) Error() string { return e.words + " (" + e.error.Error() + ")" }
func (e *explained) Unwrap() error { return e.error }

// explainTimeout adds to an error for lack of time what the cluster last reported of the Pod; any
// other error, and none, it answers as it is.
func (c *call) explainTimeout(cluster *kube.Client, pod *corev1.Pod, err error, words string) error {
	if !errors.Is(err, kube.ErrTimeout) {
		return err
	}
	detached, cancel := c.detached()
	defer cancel()
	return &explained{err, words + ": " + cluster.Explain(detached.ctx, pod)}
}
