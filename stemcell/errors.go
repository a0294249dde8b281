package stemcell

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Kinds of errors, for errors.Is.
var (
	// ErrInvalid means that the stemcell is invalid. A retry cannot succeed.
	ErrInvalid = errors.New("invalid stemcell")
	// ErrNoRegistry means that a heavy stemcell cannot be pushed, because no registry is configured.
	ErrNoRegistry = errors.New("no registry is configured")
	// ErrNotFound means that the registry does not have the image or repository.
	ErrNotFound = errors.New("image not found")
	// ErrDenied means that the registry rejected the credentials, or that they lack permissions.
	ErrDenied = errors.New("denied by the registry")
	// ErrFull means that the registry, or a proxy, has no space for the image.
	ErrFull = errors.New("the registry is full")
	// ErrUntrusted means that the registry's certificate is not trusted, or that the registry does not serve TLS.
	ErrUntrusted = errors.New("the registry is not trusted")
	// ErrDeleteUnsupported means that the registry does not allow the deletion of images.
	ErrDeleteUnsupported = errors.New("the registry does not allow the deletion of images")

	errPlainHTTP = errors.New("plain HTTP is not allowed")
)

// registryError adds a kind, a problem and a remedy to an error.
type registryError struct {
	kind            error
	problem, remedy string
	err             error
}

func (e *registryError) Error() string {
	return e.problem + "; " + e.remedy + " (" + e.err.Error() + ")"
}
func (e *registryError) Unwrap() []error { return []error{e.kind, e.err} }

// WithRemedies replaces the remedy of a registry's error, which is for the configuration of the CPI, by the one for its kind.
func WithRemedies(err error, remedies map[error]string) error {
	failed, ok := errors.AsType[*registryError](err)
	if !ok || remedies[failed.kind] == "" {
		return err
	}
	return &registryError{kind: failed.kind, problem: failed.problem, remedy: remedies[failed.kind], err: failed.err}
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// explain translates the error of a request to a registry. action describes the request, for example
// "push registry.example.com/stemcells".
func explain(action, registry string, err error) error {
	if err == nil {
		return nil
	}
	wrap := func(kind error, problem, remedy string) error {
		return &registryError{kind: kind, problem: action + ": " + problem, remedy: remedy, err: err}
	}
	var untrusted *tls.CertificateVerificationError
	var response *transport.Error
	switch {
	case errors.Is(err, ErrInvalid):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return wrap(context.DeadlineExceeded, "timed out",
			"check the network and the registry, or raise kubernetes.timeouts.create_stemcell or .other")
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", action, err)
	case errors.As(err, &untrusted):
		return wrap(ErrUntrusted, "the certificate of registry "+registry+" is not trusted",
			"set kubernetes.stemcell.registry.ca to the CA certificate that signed it")
	case isPlainHTTPError(err):
		return wrap(ErrUntrusted, "registry "+registry+" does not serve TLS",
			"install a certificate there, or set kubernetes.stemcell.registry.insecure to true if the network to it is trusted")
	case errors.As(err, &response):
		return explainResponse(wrap, registry, response, fmt.Errorf("%s: %w", action, err))
	case errors.Is(err, errPlainHTTP):
		return wrap(ErrUntrusted, "registry "+registry+" serves, or redirects to, plain HTTP",
			"correct its address or its configuration, or set kubernetes.stemcell.registry.insecure to true")
	}
	if isConnectionLost(err) {
		return fmt.Errorf("%s: the connection to registry %s was lost repeatedly: %w; "+
			"check the network, proxies and the registry's log, and retry", action, registry, err)
	}
	if connecting, ok := errors.AsType[*net.OpError](err); ok && connecting.Op == "dial" {
		return fmt.Errorf("%s: cannot connect to registry %s: %w; check its address, the network and proxies", action, registry, err)
	}
	return fmt.Errorf("%s: %s is not a container registry, or a proxy answered: %w; check its address and the network", action, registry, err)
}

func explainResponse(wrap func(error, string, string) error, registry string, response *transport.Error, fallback error) error {
	switch response.StatusCode {
	case http.StatusUnauthorized:
		return wrap(ErrDenied, "registry "+registry+" rejected the credentials",
			"check kubernetes.stemcell.registry.username and password, or token")
	case http.StatusForbidden:
		return wrap(ErrDenied, "registry "+registry+" denied access",
			"grant the account of kubernetes.stemcell.registry permission to pull, push and delete in that repository")
	case http.StatusNotFound:
		return wrap(ErrNotFound, "registry "+registry+" has no such image or repository", "check its name")
	case http.StatusInsufficientStorage:
		return wrap(ErrFull, "registry "+registry+" is full", "free space there (delete images, run its garbage collection), and retry")
	case http.StatusRequestEntityTooLarge:
		return wrap(ErrFull, "registry "+registry+", or a proxy, limits the size of uploads",
			"raise the limit (nginx: client_max_body_size)")
	case http.StatusMethodNotAllowed:
		return wrap(ErrDenied, "registry "+registry+" rejects changes, for example because it is a mirror",
			"set kubernetes.stemcell.registry.repository to a repository that accepts them")
	}
	if strings.Contains(response.Error(), "no space left") {
		return wrap(ErrFull, "the disk of registry "+registry+" is full", "free space there, and retry")
	}
	return fallback
}

// isConnectionLost reports whether the connection ended before the response was complete.
func isConnectionLost(err error) bool {
	causes := []error{io.EOF, io.ErrUnexpectedEOF, syscall.EPIPE, syscall.ECONNRESET, net.ErrClosed}
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
}

// isPlainHTTPError reports whether the server responded to a TLS handshake in plain HTTP.
func isPlainHTTPError(err error) bool {
	var record tls.RecordHeaderError
	return errors.As(err, &record) || errors.Is(err, http.ErrSchemeMismatch)
}
