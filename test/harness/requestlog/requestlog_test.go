package requestlog

import (
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestRequestLog(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "requestlog")
}

// fiveByteHandler responds with five bytes, in place of an API server.
var fiveByteHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("12345")) })

var _ = DescribeTable("Recorder records a request",
	func(method, target, recorded string, unfiltered bool) {
		var recorder Recorder
		recorder.Middleware()(1, httptest.NewRecorder(), httptest.NewRequest(method, target, http.NoBody), fiveByteHandler)
		Expect(recorder.Requests()).To(ConsistOf(recorded))
		Expect(recorder.Bytes()).To(BeEquivalentTo(5))
		if unfiltered {
			Expect(recorder.Unfiltered()).NotTo(BeEmpty())
		} else {
			Expect(recorder.Unfiltered()).To(BeEmpty())
		}
	},
	Entry("for one object", "GET", "/api/v1/namespaces/n/pods/p", "get pods", false),
	Entry("for objects with a label", "GET", "/api/v1/namespaces/n/pods?labelSelector=a%3Db", "list pods", false),
	Entry("for all objects of a namespace", "GET", "/api/v1/namespaces/n/pods?limit=250", "list pods", true),
	Entry("for all objects of a cluster", "GET", "/api/v1/nodes", "list nodes", true),
	Entry("for all objects of a named API group", "GET", "/apis/policy/v1/namespaces/n/poddisruptionbudgets", "list poddisruptionbudgets", true),
	Entry("that watches one object", "GET", "/api/v1/namespaces/n/pods?watch=true&fieldSelector=metadata.name%3Dp", "watch pods", false),
	Entry("that watches all objects", "GET", "/api/v1/namespaces/n/pods?watch=true", "watch pods", true),
	Entry("that creates an object", "POST", "/api/v1/namespaces/n/pods", "create pods", false),
	Entry("that patches a subresource", "PATCH", "/api/v1/namespaces/n/pods/p/ephemeralcontainers", "patch pods/ephemeralcontainers", false),
	Entry("for a namespace", "GET", "/api/v1/namespaces/n", "get namespaces", false),
)
