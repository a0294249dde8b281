package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/net/http2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// allKinds are the possible values of Error.Kind.
var allKinds = []error{
	ErrNotFound, ErrNotServed, ErrExists, ErrConflict, ErrRefused, ErrUnauthorized, ErrNoCredentials, ErrWebhook, ErrUnreachable, ErrCanceled, ErrTimeout,
}

// matchingKinds returns the kinds that errors.Is finds in the error.
func matchingKinds(err error) []error {
	var found []error
	for _, kind := range allKinds {
		if errors.Is(err, kind) {
			found = append(found, kind)
		}
	}
	return found
}

// Values for whether a request is repeated after an error.
const (
	repeated = true
	final    = false
)

// expectKind checks the kinds of a request's error (none, if want is empty), its message, and whether the request is repeated.
func expectKind(err error, retried bool, want ...error) {
	GinkgoHelper()
	Expect(isTransient(err)).To(Equal(retried), "repeated")
	got := translate("get Pod bosh/agent-1", err)
	Expect(matchingKinds(got)).To(ConsistOf(want), "%v", err)
	Expect(got).To(MatchError(err))
	Expect(got.Error()).To(Equal("get Pod bosh/agent-1: " + err.Error()))
}

var _ = Describe("A request's error", func() {
	pods, pod := schema.GroupResource{Resource: "pods"}, schema.GroupKind{Kind: "Pod"}

	It("is nil if the request succeeds", func() {
		Expect(translate("get Pod bosh/agent-1", nil)).To(Succeed())
	})

	DescribeTable("from the API server has a kind, and is final unless the server is unavailable", expectKind,
		Entry("no such object", apierrors.NewNotFound(pods, "agent-1"), final, ErrNotFound),
		Entry("the name exists", apierrors.NewAlreadyExists(pods, "agent-1"), final, ErrExists),
		Entry("the generated name exists", apierrors.NewGenerateNameConflict(pods, "agent-", 1), final, ErrExists),
		Entry("a changed object, another UID, or a quota that changes at the same time",
			apierrors.NewConflict(pods, "agent-1", errors.New("the object has been modified")), final, ErrConflict),
		Entry("a field of another field manager", apierrors.NewApplyConflict(nil, "conflict with kubectl"), final, ErrConflict),
		Entry("unknown credentials", apierrors.NewUnauthorized("no"), final, ErrUnauthorized, ErrRefused),
		Entry("a missing right, an exhausted quota or an admission policy", apierrors.NewForbidden(pods, "agent-1", errors.New("no")), final, ErrRefused),
		Entry("an invalid field", apierrors.NewInvalid(pod, "agent-1", nil), final, ErrRefused),
		Entry("a malformed request", apierrors.NewBadRequest("no"), final, ErrRefused),
		Entry("an unsupported verb", apierrors.NewMethodNotSupported(pods, "patch"), final, ErrRefused),
		Entry("too many requests", apierrors.NewTooManyRequests("wait", 1), repeated, ErrUnreachable),
		Entry("too many requests, without a time to wait", apierrors.NewTooManyRequestsError("wait"), repeated, ErrUnreachable),
		Entry("the server starts or shuts down", apierrors.NewServiceUnavailable("no etcd"), repeated, ErrUnreachable),
		Entry("etcd is slow", apierrors.NewServerTimeout(pods, "create", 1), repeated, ErrUnreachable),
		Entry("etcd is slow for a kind", apierrors.NewServerTimeoutForKind(pod, "create", 1), repeated, ErrUnreachable),
		Entry("the server gave up on the request", apierrors.NewTimeoutError("gave up", 1), repeated, ErrUnreachable),
		Entry("etcd failed", apierrors.NewInternalError(errors.New("etcdserver: leader changed")), repeated, ErrUnreachable),
		Entry("a webhook failed",
			apierrors.NewInternalError(errors.New(`failed calling webhook "pods.example.org": connection refused`)), repeated, ErrWebhook),
		Entry("an expired resource version", apierrors.NewResourceExpired("too old"), final),
		Entry("gone", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonGone, Code: http.StatusGone}}, final),
		Entry("a request that is too large", apierrors.NewRequestEntityTooLargeError("limit is 3 MiB"), final),
		Entry("an unknown reason", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: "Teapot", Code: http.StatusTeapot}}, final),
		Entry("a wrapped error", fmt.Errorf("read: %w", apierrors.NewNotFound(pods, "agent-1")), final, ErrNotFound),
	)

	// client-go's transformResponse creates this error for an answer without a Status, such as that of a proxy.
	proxyError := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "get", pods, "agent-1", "<html>", 0, true)
	}
	DescribeTable("from a proxy does not concern the object", expectKind,
		Entry("400", proxyError(http.StatusBadRequest), final, ErrRefused),
		Entry("401", proxyError(http.StatusUnauthorized), final, ErrUnauthorized, ErrRefused),
		Entry("403", proxyError(http.StatusForbidden), final, ErrRefused),
		Entry("404", proxyError(http.StatusNotFound), final, ErrNotServed),
		Entry("405", proxyError(http.StatusMethodNotAllowed), final, ErrRefused),
		Entry("418", proxyError(http.StatusTeapot), final),
		Entry("429", proxyError(http.StatusTooManyRequests), final),
		Entry("500", proxyError(http.StatusInternalServerError), repeated, ErrUnreachable),
		Entry("502", proxyError(http.StatusBadGateway), repeated, ErrUnreachable),
		Entry("503", proxyError(http.StatusServiceUnavailable), repeated, ErrUnreachable),
		Entry("504", proxyError(http.StatusGatewayTimeout), repeated, ErrUnreachable),
	)

	transportError := func(err error) error {
		return &url.Error{Op: "Get", URL: "https://10.0.0.1/api/v1/namespaces/bosh/pods/agent-1", Err: err}
	}
	DescribeTable("of the connection is transient unless repeating the request cannot help", expectKind,
		Entry("refused", transportError(syscall.ECONNREFUSED), repeated, ErrUnreachable),
		Entry("reset", transportError(syscall.ECONNRESET), repeated, ErrUnreachable),
		Entry("closed before an answer", transportError(io.EOF), repeated, ErrUnreachable),
		Entry("closed in the middle of an answer", fmt.Errorf("read body: %w", io.ErrUnexpectedEOF), repeated, ErrUnreachable),
		Entry("a stream reset in the middle of an answer", http2.StreamError{StreamID: 7, Code: http2.ErrCodeInternal}, repeated, ErrUnreachable),
		Entry("an unknown authority", transportError(x509.UnknownAuthorityError{}), final, ErrUnreachable),
		Entry("a certificate for another name", transportError(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "api"}), final, ErrUnreachable),
		Entry("an expired certificate", transportError(x509.CertificateInvalidError{Reason: x509.Expired}), final, ErrUnreachable),
		Entry("a certificate that fails verification", transportError(&tls.CertificateVerificationError{Err: errors.New("no")}), final, ErrUnreachable),
		Entry("a rejected client certificate", transportError(&net.OpError{Op: "remote error", Err: errors.New("tls: expired certificate")}),
			final, ErrUnauthorized, ErrRefused),
		Entry("another TLS alert", transportError(&net.OpError{Op: "remote error", Err: errors.New("tls: internal error")}), repeated, ErrUnreachable),
		Entry("a server that does not speak TLS", transportError(tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}), final, ErrUnreachable),
	)

	DescribeTable("of a credential plugin is ErrNoCredentials", expectKind,
		Entry("a missing plugin", transportError(errors.New("getting credentials: exec: executable aws not found\n\nIt looks like")), final, ErrNoCredentials),
		Entry("a failing plugin", transportError(errors.New("getting credentials: exec: executable aws failed with exit code 1")), repeated, ErrNoCredentials),
	)

	DescribeTable("of an ended context is final", expectKind,
		Entry("canceled", context.Canceled, final, ErrCanceled),
		Entry("canceled during a request", transportError(context.Canceled), final, ErrCanceled),
		Entry("past its deadline", context.DeadlineExceeded, final, ErrTimeout),
		Entry("past its deadline during a request", transportError(context.DeadlineExceeded), final, ErrTimeout),
	)

	It("of any other type has no kind and is final", func() {
		expectKind(errors.New("json: cannot unmarshal"), final)
	})
})
