package proxy

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/things-go/go-socks5/statute"

	"bosh-kubernetes-cpi/kube"
)

// findError is an error of Find: one of its kinds, with a complete message.
type findError struct {
	kind    error
	message string
}

func newFindError(kind error, format string, args ...any) error {
	return &findError{kind: kind, message: fmt.Sprintf(format, args...)}
}

func (e *findError) Error() string { return e.message }
func (e *findError) Unwrap() error { return e.kind }

// directError is the error of a direct connection.
type directError struct{ error }

func (e *directError) Unwrap() error { return e.error }

// isTransient reports whether the error may disappear while a VM boots. Find has already waited before it returned its errors.
func isTransient(err error) bool {
	var found *findError
	var direct *directError
	return !errors.As(err, &found) && !errors.As(err, &direct) && !errors.Is(err, kube.ErrDenied)
}

// failureTimes contains the times since which connections to addresses fail. It is safe for concurrent use.
type failureTimes struct{ since sync.Map }

// record records that a connection to the address failed, and returns for how long connections to it have failed.
func (f *failureTimes) record(address string, now time.Time) time.Duration {
	since, _ := f.since.LoadOrStore(address, now)
	return now.Sub(since.(time.Time))
}

// clear records that a connection to the address succeeded.
func (f *failureTimes) clear(address string) { f.since.Delete(address) }

// socksReply returns the SOCKS reply for the error; see RFC 1928, section 6.
func socksReply(err error) uint8 {
	switch {
	case errors.Is(err, ErrUnknownAddress), errors.Is(err, ErrNotRunning):
		return statute.RepHostUnreachable
	case errors.Is(err, ErrNoPort), errors.Is(err, syscall.ECONNREFUSED):
		return statute.RepConnectionRefused
	case errors.Is(err, kube.ErrDenied):
		return statute.RepRuleFailure
	default:
		return statute.RepServerFailure
	}
}

// remedy returns the remedy for the error, to append to its message. It returns "" if there is none.
func remedy(err error) string {
	switch {
	case errors.Is(err, ErrUnknownAddress):
		return "; select another namespace with -n, or connect to other addresses directly with --direct"
	case errors.Is(err, ErrNotRunning):
		return "; see `kubectl bosh ps` and `kubectl describe pod`"
	case errors.Is(err, kube.ErrDenied), strings.Contains(err.Error(), "forbidden"):
		return "; docs/reference/kubectl-bosh.md lists the required permissions"
	case strings.Contains(err.Error(), "connection refused") && !errors.Is(err, syscall.ECONNREFUSED):
		return "; nothing listens on this port of the VM's loopback interface: " +
			"the process is not running yet, or does not listen on 0.0.0.0 or 127.0.0.1"
	default:
		return ""
	}
}
