package proxy

import (
	"errors"
	"strings"
	"syscall"

	"github.com/things-go/go-socks5/statute"

	"bosh-kubernetes-cpi/kube"
)

// reply is the SOCKS reply that comes nearest to the error; see RFC 1928, section 6.
func reply(err error) uint8 {
	switch {
	case errors.Is(err, ErrNobody), errors.Is(err, ErrAway):
		return statute.RepHostUnreachable
	case errors.Is(err, ErrNoPort), errors.Is(err, syscall.ECONNREFUSED):
		return statute.RepConnectionRefused
	case errors.Is(err, kube.ErrRefused):
		return statute.RepRuleFailure
	default:
		return statute.RepServerFailure
	}
}

// advice is what the operator can do about the error, to stand behind it; "" where it says so itself.
func advice(err error) string {
	switch {
	case errors.Is(err, ErrNobody):
		return ". Is it another namespace's (-n)? With --direct it is dialed from here"
	case errors.Is(err, ErrAway):
		return ". See `kubectl bosh ps`, and `kubectl describe pod`"
	case errors.Is(err, kube.ErrRefused), strings.Contains(err.Error(), "forbidden"):
		return ". docs/kubectl-bosh.md names the rights that it takes"
	case strings.Contains(err.Error(), "connection refused") && !errors.Is(err, syscall.ECONNREFUSED):
		return ". Nothing listens there on the machine's own loopback interface: " +
			"it is not up yet, or listens on one address alone where 0.0.0.0 is needed"
	default:
		return ""
	}
}
