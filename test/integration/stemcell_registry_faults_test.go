package integration

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/chaos"
	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/director"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

// A run without CASES tries one in registryTestCaseParts test cases of registries. The seed selects them.
const registryTestCaseParts = 40

// registryEnv is an environment with a separate registry, which is initially empty. Faults can be injected into requests to the registry.
type registryEnv struct {
	testEnv
	registry *stemcells.Registry
	requests *apiproxy.FaultHandler
	host     string
}

// newRegistryEnv starts a registry, and configures the director to use it.
func newRegistryEnv(env testEnv) *registryEnv {
	GinkgoHelper()
	r := &registryEnv{testEnv: env, registry: stemcells.NewRegistry(false)}
	DeferCleanup(r.registry.Close)
	r.requests = &apiproxy.FaultHandler{Next: r.registry}
	server := httptest.NewServer(r.requests)
	DeferCleanup(server.Close)
	r.host = strings.TrimPrefix(server.URL, "http://")
	r.Director = env.directorWithConfig("stemcell", map[string]any{"registry": map[string]any{"repository": r.host + "/stemcells", "insecure": true}})
	return r
}

// createStemcellArguments returns the method and arguments that upload a heavy stemcell.
func (r *registryEnv) createStemcellArguments() []any {
	image, properties := writeHeavyImage()
	return []any{"create_stemcell", image, properties}
}

// hasImage reports whether the registry has the image of the stemcell. It fails if the image has no blob for a digest in its manifest.
func (r *registryEnv) hasImage(cid string) bool {
	GinkgoHelper()
	reference, _, _ := strings.Cut(strings.TrimPrefix(cid, "heavy://"), "#")
	repository, digest, _ := strings.Cut(strings.TrimPrefix(reference, r.host+"/"), "@")
	manifest := httptest.NewRecorder()
	r.registry.ServeHTTP(manifest, httptest.NewRequest(http.MethodGet, "/v2/"+repository+"/manifests/"+digest, http.NoBody))
	if manifest.Code == http.StatusNotFound {
		return false
	}
	Expect(manifest.Code).To(Equal(http.StatusOK))
	for _, blob := range digestPattern.FindAllString(manifest.Body.String(), -1) {
		response := httptest.NewRecorder()
		r.registry.ServeHTTP(response, httptest.NewRequest(http.MethodHead, "/v2/"+repository+"/blobs/"+blob, http.NoBody))
		Expect(response.Code).To(Equal(http.StatusOK), "%s of %s", blob, cid)
	}
	return true
}

var digestPattern = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// registryCall is a call that sends requests to a registry.
type registryCall struct {
	name       string
	beforeCall func(ctx context.Context, r *registryEnv)
	call       func(r *registryEnv) []any
	// check checks the registry after the call was retried. result is the result of the call.
	check func(ctx context.Context, r *registryEnv, result string)
}

func registryCalls() []registryCall {
	var cid string // stemcell of the current test case
	upload := func(ctx context.Context, r *registryEnv) {
		arguments := r.createStemcellArguments()
		cid = r.mustCall(ctx, "create_stemcell", arguments[1:]...).Text()
	}
	return []registryCall{
		{
			name: "create_stemcell of a heavy stemcell", call: (*registryEnv).createStemcellArguments,
			check: func(ctx context.Context, r *registryEnv, result string) {
				Expect(r.hasImage(result)).To(BeTrue())
				r.mustCall(ctx, "delete_stemcell", result)
				Expect(r.hasImage(result)).To(BeFalse())
			},
		},
		{
			name: "delete_stemcell of a heavy stemcell", beforeCall: upload,
			call:  func(*registryEnv) []any { return []any{"delete_stemcell", cid} },
			check: func(_ context.Context, r *registryEnv, _ string) { Expect(r.hasImage(cid)).To(BeFalse()) },
		},
		{
			name: "create_stemcell of a light stemcell", beforeCall: upload,
			call: func(r *registryEnv) []any {
				reference, _, _ := strings.Cut(strings.TrimPrefix(cid, "heavy://"), "#")
				return []any{"create_stemcell", os.DevNull, map[string]any{"image_reference": reference}}
			},
			check: func(_ context.Context, r *registryEnv, result string) {
				Expect(result).To(HaveSuffix("#amd64"))
				Expect(r.hasImage(result)).To(BeTrue())
			},
		},
	}
}

var _ = Describe("A fault at any request to a registry of", Label("faults"), func() {
	for _, call := range registryCalls() {
		It(call.name+" lets the call be retried and undone", func(ctx context.Context) { runRegistryCall(ctx, newTestEnv(ctx), call) })
	}
})

// runRegistryCall runs the selected test cases of the call, each with a separate registry.
func runRegistryCall(ctx context.Context, env testEnv, call registryCall) {
	expected, requests := call.callWithoutFault(ctx, newRegistryEnv(env))
	cases := chaos.Cases{Group: call.name + " at the registry"}
	for i, request := range requests {
		for _, spec := range registryFaults() {
			tc := testCase{scenario: scenario{name: call.name + " at the registry"}, n: i + 1, request: request, faultSpec: spec}
			if spec.appliesTo != nil && !spec.appliesTo(request) || !chaos.IsSelected(tc.String(), registryTestCaseParts) {
				continue
			}
			cases.Try(tc, func() bool { call.runTestCase(ctx, newRegistryEnv(env), tc, expected); return true })
		}
	}
	chaos.AddToReport(testCaseReportEntry, cases)
}

// prepareArguments prepares the environment for the call, and returns its method and arguments.
func (call registryCall) prepareArguments(ctx context.Context, r *registryEnv) []any {
	if call.beforeCall != nil {
		call.beforeCall(ctx, r)
	}
	return call.call(r)
}

// callWithoutFault makes the call without a fault, and returns its result and its requests to the registry.
func (call registryCall) callWithoutFault(ctx context.Context, r *registryEnv) (string, []string) {
	arguments := call.prepareArguments(ctx, r)
	r.requests.Reset(nil)
	method, _ := arguments[0].(string)
	response := r.mustCall(ctx, method, arguments[1:]...)
	requests := r.requests.Requests()
	call.check(ctx, r, response.Text())
	return r.normalizeHost(response), requests
}

// normalizeHost returns the result of the response without the address of the registry.
func (r *registryEnv) normalizeHost(response director.Response) string {
	return strings.ReplaceAll(normalizedResult(response), r.host, "REGISTRY")
}

// runTestCase makes the call with the fault, and retries it.
func (call registryCall) runTestCase(ctx context.Context, r *registryEnv, tc testCase, expected string) {
	arguments := call.prepareArguments(ctx, r)
	d := r.Director
	if tc.shortTimeout {
		d = r.directorWithTimeouts(shortTimeouts)
	}
	first, _, callErr := callWithFault(ctx, d, r.requests, func(sendSignal func(os.Signal)) apiproxy.Fault { return tc.inject(tc.n, sendSignal) }, arguments)
	if tc.tolerated {
		Expect(callErr).NotTo(HaveOccurred())
		Expect(first.Error).To(BeNil(), "the call with the fault: %s", first.Stderr)
		Expect(r.normalizeHost(first)).To(Equal(expected), "the result of the call with the fault")
	}
	if callErr == nil && first.Error != nil {
		Expect(first.Error.Type).To(HavePrefix("Bosh::Clouds::"))
		Expect(first.Error.Message).To(ContainSubstring(r.host))
	}
	method, _ := arguments[0].(string)
	retried := r.mustCall(ctx, method, arguments[1:]...)
	Expect(r.normalizeHost(retried)).To(Equal(expected), "the result of the retried call")
	call.check(ctx, r, retried.Text())
}

// registryFaults returns the faults for requests to a registry.
func registryFaults() []faultSpec {
	faults := append(processFaults(), connectionFaults()...)
	for _, registryError := range []struct {
		status    int
		code      string
		tolerated bool
	}{
		{http.StatusUnauthorized, "UNAUTHORIZED", false},
		{http.StatusForbidden, "DENIED", false},
		{http.StatusNotFound, "NAME_UNKNOWN", false},
		{http.StatusTooManyRequests, "TOOMANYREQUESTS", false},
		{http.StatusInternalServerError, "UNKNOWN", true},
		{http.StatusBadGateway, "UNAVAILABLE", true},
		{http.StatusServiceUnavailable, "UNAVAILABLE", true},
		{http.StatusGatewayTimeout, "UNAVAILABLE", true},
	} {
		faults = append(faults, newFaultSpec(statusName(registryError.status)+" of the registry", registryError.tolerated, func(n int) apiproxy.Fault {
			return apiproxy.ReplaceResponse(n, func(w http.ResponseWriter, request *http.Request) {
				_, _ = io.Copy(io.Discard, request.Body)
				stemcells.WriteError(w, registryError.status, registryError.code, "injected by a test")
			})
		}))
	}
	return faults
}
