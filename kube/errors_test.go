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
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// allKinds are the possible values of Error.Kind.
var allKinds = []error{
	ErrNotFound, ErrNotServed, ErrExists, ErrConflict, ErrDenied, ErrUnauthorized, ErrInvalid, ErrUnsent, ErrNoNamespace, ErrNoCredentials, ErrWebhook, ErrUnreachable, ErrCanceled, ErrTimeout,
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

// Values for whether a request is retried after an error.
const (
	retriable = true
	final     = false
)

// expectKind checks that err is translated to an error of exactly these kinds and with its message, and whether it is retriable.
func expectKind(err error, isRetriable bool, kinds ...error) {
	GinkgoHelper()
	Expect(isTransient(err)).To(Equal(isRetriable), "retriable")
	translated := translate("get Pod default/web", err)
	Expect(matchingKinds(translated)).To(ConsistOf(kinds), "%v", err)
	Expect(translated).To(MatchError(err))
	Expect(translated.Error()).To(Equal("get Pod default/web: " + err.Error()))
}

var _ = Describe("A request's error", func() {
	pods, pod := schema.GroupResource{Resource: "pods"}, schema.GroupKind{Kind: "Pod"}

	It("is nil if the request succeeds", func() {
		Expect(translate("get Pod default/web", nil)).To(Succeed())
	})

	DescribeTable("from the API server has a kind, and is final unless the server is unavailable:", expectKind,
		Entry("no such object", apierrors.NewNotFound(pods, "web"), final, ErrNotFound),
		Entry("no such namespace", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "default"), final, ErrNoNamespace, ErrNotFound),
		Entry("the name exists", apierrors.NewAlreadyExists(pods, "web"), final, ErrExists),
		Entry("the generated name exists", apierrors.NewGenerateNameConflict(pods, "web-", 1), final, ErrExists),
		Entry("a changed object, another UID, or a quota that another request changes",
			apierrors.NewConflict(pods, "web", errors.New("the object has been modified")), final, ErrConflict),
		Entry("another UID in a patch", apierrors.NewInvalid(pod, "web", field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), "other", "field is immutable")}), final, ErrConflict),
		Entry("a field of another field manager", apierrors.NewApplyConflict(nil, "conflict with kubectl"), final, ErrConflict),
		Entry("invalid credentials", apierrors.NewUnauthorized("no"), final, ErrUnauthorized, ErrDenied),
		Entry("a missing permission, an exhausted quota or an admission policy", apierrors.NewForbidden(pods, "web", errors.New("no")), final, ErrDenied),
		Entry("a PriorityClass that requires a ResourceQuota", &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure,
			Code: http.StatusInternalServerError, Message: "insufficient quota to match these scopes: [{PriorityClass In [system-node-critical]}]"}}, final, ErrDenied),
		Entry("an invalid field", apierrors.NewInvalid(pod, "web", nil), final, ErrInvalid, ErrDenied),
		Entry("a malformed request", apierrors.NewBadRequest("no"), final, ErrInvalid, ErrDenied),
		Entry("a missing permission of a request without credentials", apierrors.NewForbidden(pods, "web", errors.New(`User "system:anonymous" cannot get resource "pods"`)),
			final, ErrUnauthorized, ErrDenied),
		Entry("an unsupported verb", apierrors.NewMethodNotSupported(pods, "patch"), final, ErrDenied),
		Entry("too many requests", apierrors.NewTooManyRequests("wait", 1), retriable, ErrUnreachable),
		Entry("too many requests without Retry-After", apierrors.NewTooManyRequestsError("wait"), retriable, ErrUnreachable),
		Entry("the server is starting or shutting down", apierrors.NewServiceUnavailable("no etcd"), retriable, ErrUnreachable),
		Entry("etcd is slow", apierrors.NewServerTimeout(pods, "create", 1), retriable, ErrUnreachable),
		Entry("etcd is slow for a kind", apierrors.NewServerTimeoutForKind(pod, "create", 1), retriable, ErrUnreachable),
		Entry("the server gave up on the request", apierrors.NewTimeoutError("gave up", 1), retriable, ErrUnreachable),
		Entry("etcd failed", apierrors.NewInternalError(errors.New("etcdserver: leader changed")), retriable, ErrUnreachable),
		Entry("a webhook failed",
			apierrors.NewInternalError(errors.New(`failed calling webhook "pods.example.org": connection refused`)), retriable, ErrWebhook),
		Entry("an expired resource version", apierrors.NewResourceExpired("too old"), final),
		Entry("gone", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonGone, Code: http.StatusGone}}, final),
		Entry("a request that is too large", apierrors.NewRequestEntityTooLargeError("limit is 3 MiB"), final),
		Entry("an unknown reason", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: "Teapot", Code: http.StatusTeapot}}, final),
		Entry("a wrapped error", fmt.Errorf("read: %w", apierrors.NewNotFound(pods, "web")), final, ErrNotFound),
	)

	forbidden := func(text string) error { return apierrors.NewForbidden(pods, "web", errors.New(text)) }
	DescribeTable("about a missing object to which a Pod refers is about its fields:", expectKind,
		Entry("a PriorityClass", forbidden("no PriorityClass with name high was found"), final, ErrInvalid, ErrDenied),
		Entry("a service account", forbidden(`error looking up service account default/a: serviceaccount "a" not found`), final, ErrInvalid, ErrDenied),
		Entry("a RuntimeClass", forbidden(`pod rejected: RuntimeClass "gvisor" not found`), final, ErrInvalid, ErrDenied),
	)

	// client-go's transformResponse creates this error for a response without a Status, for example from a proxy.
	proxyError := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "get", pods, "web", "<html>", 0, true)
	}
	DescribeTable("from a proxy does not concern the object:", expectKind,
		Entry("400", proxyError(http.StatusBadRequest), final, ErrNotServed),
		Entry("401", proxyError(http.StatusUnauthorized), final, ErrUnauthorized, ErrDenied),
		Entry("403", proxyError(http.StatusForbidden), final, ErrDenied),
		Entry("404", proxyError(http.StatusNotFound), final, ErrNotServed),
		Entry("405", proxyError(http.StatusMethodNotAllowed), final, ErrDenied),
		Entry("418", proxyError(http.StatusTeapot), final),
		Entry("429", proxyError(http.StatusTooManyRequests), final),
		Entry("500", proxyError(http.StatusInternalServerError), retriable, ErrUnreachable),
		Entry("502", proxyError(http.StatusBadGateway), retriable, ErrUnreachable),
		Entry("503", proxyError(http.StatusServiceUnavailable), retriable, ErrUnreachable),
		Entry("504", proxyError(http.StatusGatewayTimeout), retriable, ErrUnreachable),
	)

	transportError := func(err error) error {
		return &url.Error{Op: "Get", URL: "https://10.0.0.1/api/v1/namespaces/default/pods/web", Err: err}
	}
	verificationError := func(err error) error { return transportError(&tls.CertificateVerificationError{Err: err}) }
	DescribeTable("of the connection is retriable unless a retry cannot succeed:", expectKind,
		Entry("refused", transportError(syscall.ECONNREFUSED), retriable, ErrUnreachable),
		Entry("reset", transportError(syscall.ECONNRESET), retriable, ErrUnreachable),
		Entry("closed before a response", transportError(io.EOF), retriable, ErrUnreachable),
		Entry("closed in the middle of a response", fmt.Errorf("read body: %w", io.ErrUnexpectedEOF), retriable, ErrUnreachable),
		Entry("a stream reset in the middle of a response", http2.StreamError{StreamID: 7, Code: http2.ErrCodeInternal}, retriable, ErrUnreachable),
		Entry("an unknown authority", verificationError(x509.UnknownAuthorityError{}), final, ErrUnreachable),
		Entry("a certificate for another name", verificationError(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "api"}), final, ErrUnreachable),
		Entry("an expired certificate", verificationError(x509.CertificateInvalidError{Reason: x509.Expired}), final, ErrUnreachable),
		Entry("a rejected client certificate", transportError(&net.OpError{Op: "remote error", Err: errors.New("tls: expired certificate")}),
			final, ErrUnauthorized, ErrDenied),
		Entry("another TLS alert", transportError(&net.OpError{Op: "remote error", Err: errors.New("tls: internal error")}), retriable, ErrUnreachable),
		Entry("a server that does not speak TLS", transportError(tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}), final, ErrNotServed),
		Entry("a server that speaks plain HTTP", transportError(http.ErrSchemeMismatch), final, ErrNotServed),
	)

	DescribeTable("of a credential plugin is ErrNoCredentials:", expectKind,
		Entry("a plugin that is not installed", transportError(errors.New("getting credentials: exec: executable aws not found\n\nIt looks like")), final, ErrNoCredentials),
		Entry("a plugin that fails", transportError(errors.New("getting credentials: exec: executable aws failed with exit code 1")), final, ErrNoCredentials),
	)

	DescribeTable("of an ended context is final:", expectKind,
		Entry("canceled", context.Canceled, final, ErrCanceled),
		Entry("canceled during a request", transportError(context.Canceled), final, ErrCanceled),
		Entry("past its deadline", context.DeadlineExceeded, final, ErrTimeout),
		Entry("past its deadline during a request", transportError(context.DeadlineExceeded), final, ErrTimeout),
	)

	It("of another type has no kind and is final", func() {
		expectKind(errors.New("json: cannot unmarshal"), final)
	})
})
