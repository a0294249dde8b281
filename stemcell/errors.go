package stemcell

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// What went wrong, for errors.Is.
var (
	// ErrInvalid: the stemcell itself is at fault; another try with it cannot succeed.
	ErrInvalid = errors.New("invalid stemcell")
	// ErrNoRegistry: a heavy stemcell, and no registry is configured that it could be pushed to.
	ErrNoRegistry = errors.New("no registry is configured")
	// ErrNotFound: the registry answers that it has no such image.
	ErrNotFound = errors.New("image not found")
	// ErrDenied: the registry does not accept the credentials, or they do not suffice.
	ErrDenied = errors.New("denied by the registry")
	// ErrFull: the registry has no room for the image.
	ErrFull = errors.New("the registry is full")
	// ErrUntrusted: the registry's certificate, or that it has none, is not accepted.
	ErrUntrusted = errors.New("the registry is not trusted")
	// ErrUndeletable: the registry deletes no images.
	ErrUndeletable = errors.New("the registry deletes no images")

	errPlainHTTP = errors.New("plain HTTP is not allowed")
)

// registryError says what an error means and what to do, and keeps the error.
type registryError struct {
	kind    error
	message string
	err     error
}

func (e *registryError) Error() string   { return e.message + " (" + e.err.Error() + ")" }
func (e *registryError) Unwrap() []error { return []error{e.kind, e.err} }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// explain is the one place where a registry's answers become this package's errors. action names what
// was tried, for example "push registry.example.com/stemcells".
func explain(action, registry string, err error) error {
	if err == nil {
		return nil
	}
	wrap := func(kind error, message string) error {
		return &registryError{kind: kind, message: action + ": " + message, err: err}
	}
	var response *transport.Error
	switch {
	case errors.Is(err, ErrInvalid):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: ended before it was done: %w", action, err)
	case isUntrustedCertificate(err):
		return wrap(ErrUntrusted, "the certificate of registry "+registry+" is not trusted: "+
			"set stemcell.registry.ca to the certificate authority that signed it")
	case isPlainHTTPError(err):
		return wrap(ErrUntrusted, "registry "+registry+" does not speak TLS: "+
			"give it a certificate, or set stemcell.registry.insecure to true when the network to it is trusted")
	case errors.As(err, &response):
		return explainResponse(wrap, registry, response, fmt.Errorf("%s: %w", action, err))
	case errors.Is(err, errPlainHTTP):
		return wrap(ErrUntrusted, "registry "+registry+" can only be reached, or sends its clients on, by plain HTTP: "+
			"correct its address or its own configuration, or set stemcell.registry.insecure to true")
	}
	if isConnectionLost(err) {
		return fmt.Errorf("%s: the connection to registry %s breaks off, also when tried again "+
			"(check the network and the proxies between, and the registry's log, and repeat): %w", action, registry, err)
	}
	return fmt.Errorf("%s: registry %s does not answer as one (check its address and the network between): %w", action, registry, err)
}

func explainResponse(wrap func(error, string) error, registry string, response *transport.Error, fallback error) error {
	switch response.StatusCode {
	case http.StatusUnauthorized:
		return wrap(ErrDenied, "registry "+registry+" does not accept the credentials: check stemcell.registry.username and password, or token")
	case http.StatusForbidden:
		return wrap(ErrDenied, "registry "+registry+" denies it: "+
			"give the account of stemcell.registry the right to pull, push and delete in that repository")
	case http.StatusNotFound:
		return wrap(ErrNotFound, "registry "+registry+" has no such image or repository")
	case http.StatusInsufficientStorage:
		return wrap(ErrFull, "registry "+registry+" is full: free space there (delete images, run its garbage collection) and repeat")
	case http.StatusRequestEntityTooLarge:
		return wrap(ErrFull, "registry "+registry+", or a proxy before it, takes no upload of this size: "+
			"raise its limit (nginx: client_max_body_size)")
	case http.StatusMethodNotAllowed:
		return wrap(ErrUndeletable, "registry "+registry+" does not allow it: enable deletion there "+
			"(REGISTRY_STORAGE_DELETE_ENABLED=true for the registry of Docker and Debian)")
	}
	if strings.Contains(response.Error(), "no space left") {
		return wrap(ErrFull, "the disk of registry "+registry+" is full: free space there and repeat")
	}
	return fallback
}

func isUntrustedCertificate(err error) bool {
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var certificate x509.CertificateInvalidError
	var verification *tls.CertificateVerificationError
	return errors.As(err, &authority) || errors.As(err, &hostname) || errors.As(err, &certificate) || errors.As(err, &verification)
}

// isConnectionLost reports whether a connection ended before the registry had answered.
func isConnectionLost(err error) bool {
	for _, each := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.EPIPE, syscall.ECONNRESET, net.ErrClosed} {
		if errors.Is(err, each) {
			return true
		}
	}
	return false
}

// isPlainHTTPError recognizes a server that answers a TLS handshake in plain HTTP. net/http has no type for
// what it makes of that.
func isPlainHTTPError(err error) bool {
	var record tls.RecordHeaderError
	return errors.As(err, &record) || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}
