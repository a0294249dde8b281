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

// allKinds are those of Error.Kind.
var allKinds = []error{
	ErrNotFound, ErrNotServed, ErrExists, ErrConflict, ErrRefused, ErrUnauthorized, ErrNoCredentials, ErrWebhook, ErrUnreachable, ErrCanceled, ErrTimeout,
}

// matchingKinds returns what errors.Is finds in the error.
func matchingKinds(err error) []error {
	var found []error
	for _, kind := range allKinds {
		if errors.Is(err, kind) {
			found = append(found, kind)
		}
	}
	return found
}

// Whether a request is repeated after an error.
const (
	repeated = true
	final    = false
)

// expectKind checks what becomes of a request's error; no kinds are for an error of none.
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

	It("is none for none", func() {
		Expect(translate("get Pod bosh/agent-1", nil)).To(Succeed())
	})

	DescribeTable("from the API server has its kind, and is final unless the server says that it cannot serve now", expectKind,
		Entry("no such object", apierrors.NewNotFound(pods, "agent-1"), final, ErrNotFound),
		Entry("the name is taken", apierrors.NewAlreadyExists(pods, "agent-1"), final, ErrExists),
		Entry("the generated name is taken", apierrors.NewGenerateNameConflict(pods, "agent-", 1), final, ErrExists),
		Entry("changed since it was read, another UID, or a quota that others use up at the same time",
			apierrors.NewConflict(pods, "agent-1", errors.New("the object has been modified")), final, ErrConflict),
		Entry("a field that another applied", apierrors.NewApplyConflict(nil, "conflict with kubectl"), final, ErrConflict),
		Entry("credentials that it does not know", apierrors.NewUnauthorized("no"), final, ErrUnauthorized, ErrRefused),
		Entry("a missing right, a used up quota, an admission policy", apierrors.NewForbidden(pods, "agent-1", errors.New("no")), final, ErrRefused),
		Entry("an invalid field", apierrors.NewInvalid(pod, "agent-1", nil), final, ErrRefused),
		Entry("a request that it cannot read", apierrors.NewBadRequest("no"), final, ErrRefused),
		Entry("a verb that it does not have", apierrors.NewMethodNotSupported(pods, "patch"), final, ErrRefused),
		Entry("too many requests", apierrors.NewTooManyRequests("wait", 1), repeated, ErrUnreachable),
		Entry("too many requests, without a time to wait", apierrors.NewTooManyRequestsError("wait"), repeated, ErrUnreachable),
		Entry("it is starting or ending", apierrors.NewServiceUnavailable("no etcd"), repeated, ErrUnreachable),
		Entry("its storage is slow", apierrors.NewServerTimeout(pods, "create", 1), repeated, ErrUnreachable),
		Entry("its storage is slow for a kind", apierrors.NewServerTimeoutForKind(pod, "create", 1), repeated, ErrUnreachable),
		Entry("it gave up on the request", apierrors.NewTimeoutError("gave up", 1), repeated, ErrUnreachable),
		Entry("its storage failed", apierrors.NewInternalError(errors.New("etcdserver: leader changed")), repeated, ErrUnreachable),
		Entry("a webhook that it asked failed",
			apierrors.NewInternalError(errors.New(`failed calling webhook "pods.example.org": connection refused`)), repeated, ErrWebhook),
		Entry("a watch's version is too old", apierrors.NewResourceExpired("too old"), final),
		Entry("gone for good", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonGone, Code: http.StatusGone}}, final),
		Entry("a request that is too large", apierrors.NewRequestEntityTooLargeError("limit is 3 MiB"), final),
		Entry("a reason that is not known here", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: "Teapot", Code: http.StatusTeapot}}, final),
		Entry("an answer with a reason, around which there is more to say", fmt.Errorf("read: %w", apierrors.NewNotFound(pods, "agent-1")), final, ErrNotFound),
	)

	// A body that is not Kubernetes' own speaks of a server on the way: client-go's transformResponse.
	proxyError := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "get", pods, "agent-1", "<html>", 0, true)
	}
	DescribeTable("from a proxy says nothing of the object", expectKind,
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
	DescribeTable("on the way is repeated unless that cannot help", expectKind,
		Entry("refused", transportError(syscall.ECONNREFUSED), repeated, ErrUnreachable),
		Entry("reset", transportError(syscall.ECONNRESET), repeated, ErrUnreachable),
		Entry("closed before an answer", transportError(io.EOF), repeated, ErrUnreachable),
		Entry("closed in the middle of an answer", fmt.Errorf("read body: %w", io.ErrUnexpectedEOF), repeated, ErrUnreachable),
		Entry("a stream reset in the middle of an answer", http2.StreamError{StreamID: 7, Code: http2.ErrCodeInternal}, repeated, ErrUnreachable),
		Entry("an unknown authority", transportError(x509.UnknownAuthorityError{}), final, ErrUnreachable),
		Entry("a certificate for another name", transportError(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "api"}), final, ErrUnreachable),
		Entry("a certificate that is over", transportError(x509.CertificateInvalidError{Reason: x509.Expired}), final, ErrUnreachable),
		Entry("a certificate that is not accepted", transportError(&tls.CertificateVerificationError{Err: errors.New("no")}), final, ErrUnreachable),
		Entry("a client certificate that is not accepted", transportError(&net.OpError{Op: "remote error", Err: errors.New("tls: expired certificate")}),
			final, ErrUnauthorized, ErrRefused),
		Entry("another refusal of the handshake", transportError(&net.OpError{Op: "remote error", Err: errors.New("tls: internal error")}), repeated, ErrUnreachable),
		Entry("a server that does not speak TLS", transportError(tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}), final, ErrUnreachable),
	)

	DescribeTable("before anything is sent has its kind", expectKind,
		Entry("no program that gives credentials", transportError(errors.New("getting credentials: exec: executable aws not found\n\nIt looks like")), final, ErrNoCredentials),
		Entry("one that fails", transportError(errors.New("getting credentials: exec: executable aws failed with exit code 1")), repeated, ErrNoCredentials),
	)

	DescribeTable("of the call's own end is final", expectKind,
		Entry("told to end", context.Canceled, final, ErrCanceled),
		Entry("told to end in a request", transportError(context.Canceled), final, ErrCanceled),
		Entry("out of time", context.DeadlineExceeded, final, ErrTimeout),
		Entry("out of time in a request", transportError(context.DeadlineExceeded), final, ErrTimeout),
	)

	It("of another sort has no kind and is final", func() {
		expectKind(errors.New("json: cannot unmarshal"), final)
	})
})
