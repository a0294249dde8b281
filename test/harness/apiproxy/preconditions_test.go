package apiproxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

func TestAPIProxy(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "API proxy")
}

const (
	uid             = `{"metadata":{"uid":"1"}}`
	resourceVersion = `{"metadata":{"uid":"1","resourceVersion":"2"}}`
)

var _ = Describe("The strict proxy", func() {
	request := func(method, object string, contentType types.PatchType, body string) *http.Request {
		r := httptest.NewRequest(method, "/api/v1/namespaces/bosh/"+object, strings.NewReader(body))
		r.Header.Set("Content-Type", string(contentType))
		return r
	}

	DescribeTable("accepts a merge patch of", func(object, body string) {
		Expect(missingPrecondition(request(http.MethodPatch, object, types.StrategicMergePatchType, body))).To(BeEmpty())
	},
		Entry("a PodTemplate that was read", "podtemplates/agent-1", resourceVersion),
		Entry("a Service that was read", "services/web", resourceVersion),
		Entry("a Pod, by UID", "pods/agent-1", uid),
		Entry("an attachment Pod, for a check", "pods/disk-1-attachment/ephemeralcontainers", uid),
		Entry("the metadata of a VM", "pods/agent-1", `{"metadata":{"annotations":{"bosh.cloudfoundry.org/metadata":"{}"}}}`),
		Entry("the labels of a disk", "persistentvolumeclaims/disk-1", `{"metadata":{"labels":{"team":"a"}}}`),
	)

	DescribeTable("rejects a merge patch of", func(object, body string) {
		Expect(missingPrecondition(request(http.MethodPatch, object, types.StrategicMergePatchType, body))).To(ContainSubstring("no precondition"))
	},
		Entry("a PodTemplate", "podtemplates/agent-1", `{"template":{}}`),
		Entry("a PodTemplate, by UID only", "podtemplates/agent-1", uid),
		Entry("the metadata of a PodTemplate", "podtemplates/agent-1", `{"metadata":{"annotations":{"bosh.cloudfoundry.org/metadata":"{}"}}}`),
		Entry("a Service, by UID only", "services/web", uid),
		Entry("a kind without a rule of its own", "configmaps/one", uid),
		Entry("a Pod", "pods/agent-1", `{"spec":{"schedulingGates":null}}`),
		Entry("the owner of a disk", "persistentvolumeclaims/disk-1", `{"metadata":{"annotations":{"bosh.cloudfoundry.org/owner-uid":"1"}}}`),
		Entry("the size of a disk", "persistentvolumeclaims/disk-1", `{"spec":{"resources":{}}}`),
	)

	It("rejects a JSON patch that tests nothing", func() {
		patch := `[{"op":"remove","path":"/metadata/labels/a"}]`
		Expect(missingPrecondition(request(http.MethodPatch, "pods/agent-1", types.JSONPatchType, patch))).To(ContainSubstring("no test operation"))
	})

	It("rejects a deletion without a UID", func() {
		Expect(missingPrecondition(request(http.MethodDelete, "secrets/agent-1", "application/json", `{}`))).To(ContainSubstring("no UID"))
	})
})
