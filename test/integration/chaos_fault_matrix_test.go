package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/chaos"
	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/director"
)

// A run without CASES tries one in scenarioParts scenarios, and one in testCaseParts of their test cases. The seed selects them, so that
// many runs together try all. In addition, each run kills the process after one in killedCallParts requests of the core scenarios.
const (
	scenarioParts = 8
	testCaseParts = 8
)

// shardsPerScenario is the number of specs for each scenario in a run with CASES. The specs run in parallel: some scenarios have hundreds
// of test cases.
const shardsPerScenario = 4

// testCase is one fault at one request of a scenario's call.
type testCase struct {
	scenario scenario
	n        int
	request  string
	faultSpec
}

func (tc testCase) String() string {
	return fmt.Sprintf("%s, at request %d (%s): %s", tc.scenario.name, tc.n, normalizeIDs(tc.request), tc.name)
}

// selected reports whether this run tries the test case.
func (tc testCase) selected() bool {
	if chaos.Pattern == "" && tc.scenario.core && tc.name == killedAfter {
		return chaos.IsSelected(tc.String(), killedCallParts)
	}
	return (chaos.Pattern != "" || tc.scenario.selected) && chaos.IsSelected(tc.String(), testCaseParts)
}

var _ = Describe("A fault at any request of", long, Label("faults"), func() {
	for i, sc := range scenarios() {
		sc.selected = (i+int(GinkgoRandomSeed()))%scenarioParts == 0
		if chaos.Pattern == "" && !sc.selected && !sc.core {
			continue
		}
		const description = " lets the call be retried and undone, and changes nothing else"
		if chaos.Pattern == "" {
			It(sc.name+description, func(ctx context.Context) { runScenario(ctx, sc, 0, 1) })
			continue
		}
		for shard := range shardsPerScenario {
			It(fmt.Sprintf("%s%s (shard %d)", sc.name, description, shard+1), func(ctx context.Context) {
				runScenario(ctx, sc, shard, shardsPerScenario)
			})
		}
	}
})

// runScenario runs the selected test cases of the scenario that belong to this shard.
func runScenario(ctx context.Context, sc scenario, shard, shards int) {
	s := newScenarioEnv(ctx, sc)
	expected, requests := s.callWithoutFault(ctx, sc)
	cases := chaos.Cases{Group: sc.name}
	selectedCount := 0
	for i, request := range requests {
		for _, spec := range allFaults() {
			tc := testCase{scenario: sc, n: i + 1, request: request, faultSpec: spec}
			if spec.appliesTo != nil && !spec.appliesTo(request) || !tc.selected() {
				continue
			}
			selectedCount++
			if selectedCount%shards != shard {
				continue
			}
			if _, passed := cases.Try(tc, func() bool { s.runTestCase(ctx, tc, expected); return true }); !passed || spec.deletePod != nil {
				s = newScenarioEnv(ctx, sc)
			}
		}
	}
	chaos.AddToReport(testCaseReportEntry, cases)
}

// callWithoutFault makes the call without a fault, and returns its result and its requests.
func (s *scenarioEnv) callWithoutFault(ctx context.Context, sc scenario) (string, []string) {
	s.runBeforeCall(ctx, sc)
	arguments := sc.call(s)
	s.proxy.Reset(nil)
	method, _ := arguments[0].(string)
	response := s.mustCall(ctx, method, arguments[1:]...)
	requests := s.proxy.Requests()
	s.undoAndVerify(ctx, sc)
	return normalizedResult(response), requests
}

// runBeforeCall prepares the environment for the next call of the scenario.
func (s *scenarioEnv) runBeforeCall(ctx context.Context, sc scenario) {
	if sc.beforeCall != nil {
		sc.beforeCall(ctx, s)
	}
}

// undoAndVerify undoes the call, and waits until the state is the same as before the call.
func (s *scenarioEnv) undoAndVerify(ctx context.Context, sc scenario) {
	if sc.undo != nil {
		sc.undo(ctx, s)
	}
	Eventually(s.listAllObjects).WithContext(ctx).Should(Equal(s.baseline))
	Expect(s.invariantState(ctx, sc.strategy == "")).To(Equal(s.baselineState))
}

// runTestCase makes the call with the fault, retries it, and undoes it.
func (s *scenarioEnv) runTestCase(ctx context.Context, tc testCase, expected string) {
	s.runBeforeCall(ctx, tc.scenario)
	arguments := tc.scenario.call(s)
	first, requests, callErr := s.callWithFault(ctx, tc, arguments)
	s.expectNoSecrets(first)
	// A call has its result before it records an Event. The nth request can differ from the nth request without a fault. For example, the
	// call does not watch if it does not have to wait. With short timeouts, the call may have failed before.
	if tc.withholdsEventResponses() || tc.n <= len(requests) && isEventRequest(requests[tc.n-1]) && !tc.needsShortTimeouts() {
		tc.tolerated = true
	}
	if callErr == nil && (tc.tolerated || first.Error != nil) {
		s.expectFaultedResponse(tc, first, expected)
	}
	if tc.deletePod != nil {
		s.retryAfterPodDeletion(ctx, arguments)
		s.deleteAllButBystander(ctx)
		return
	}
	if succeeded := callErr == nil && first.Error == nil; !succeeded || !tc.scenario.notIdempotent {
		s.expectRetrySucceeds(ctx, tc, arguments, expected)
	}
	s.undoAndVerify(ctx, tc.scenario)
}

// shortTimeouts are for a call with a request without a response.
var shortTimeouts = map[string]any{
	"create_vm": "3s", "attach_disk": "3s", "detach_disk": "3s", "delete_vm": "3s", "create_stemcell": "3s", "other": "3s", "request": "1s",
}

// needsShortTimeouts reports whether the call waits for a response that does not arrive. It does not wait for that of an Event.
func (tc testCase) needsShortTimeouts() bool { return tc.shortTimeout && !isEventRequest(tc.request) }

// withholdsEventResponses reports whether the requests that create Events get no response. The fault then applies only to them, even if the
// nth request of this call is a different one: the call has its usual timeouts, of up to ten minutes, and would wait for the response.
func (tc testCase) withholdsEventResponses() bool {
	return tc.shortTimeout && isEventRequest(tc.request)
}

// callWithFault makes the call with the fault, and returns its response and its requests. An error means that its process exited without a
// response.
func (s *scenarioEnv) callWithFault(ctx context.Context, tc testCase, arguments []any) (director.Response, []string, error) {
	d := s.Director
	if tc.needsShortTimeouts() {
		d = s.directorWithTimeouts(shortTimeouts)
	}
	return callWithFault(ctx, d, &s.proxy.FaultHandler, func(sendSignal func(os.Signal)) apiproxy.Fault { return s.testCaseFault(ctx, tc, sendSignal) }, arguments)
}

// callWithFault makes a call of the director with a fault in the handler of its requests. The fault can send signals to the process of the
// call.
func callWithFault(ctx context.Context, d *director.Director, handler *apiproxy.FaultHandler, newFault func(sendSignal func(os.Signal)) apiproxy.Fault,
	arguments []any) (response director.Response, requests []string, err error) {

	killable, sendSignal := d.Killable()
	handler.Reset(newFault(func(signal os.Signal) { _ = sendSignal(signal) }))
	defer handler.Reset(nil)
	method, _ := arguments[0].(string)
	response, err = killable.Call(ctx, method, arguments[1:]...)
	return response, handler.Requests(), err
}

// testCaseFault returns the fault of the test case. sendSignal sends a signal to the process of the call.
func (s *scenarioEnv) testCaseFault(ctx context.Context, tc testCase, sendSignal func(os.Signal)) apiproxy.Fault {
	if tc.withholdsEventResponses() {
		return func(n int, w http.ResponseWriter, r *http.Request, next http.Handler) {
			fault := apiproxy.Forward(n)
			if isEventRequest(r.Method + " " + r.URL.Path) {
				fault = tc.inject(n, sendSignal)
			}
			fault(n, w, r, next)
		}
	}
	if tc.deletePod == nil {
		return tc.inject(tc.n, sendSignal)
	}
	return func(n int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if n == tc.n {
			if pod := podRequestPattern.FindStringSubmatch(r.Method + " " + strings.TrimPrefix(r.URL.Path, "/api/v1/")); pod != nil {
				tc.deletePod(ctx, s, pod[1])
			}
		}
		next.ServeHTTP(w, r)
	}
}

// expectFaultedResponse checks the response of a call with a fault.
func (s *scenarioEnv) expectFaultedResponse(tc testCase, response director.Response, expected string) {
	if tc.tolerated {
		Expect(response.Error).To(BeNil(), "the call with the fault: %s", response.Stderr)
		Expect(normalizedResult(response)).To(Equal(expected), "the result of the call with the fault")
		return
	}
	Expect(response.Error.Type).To(HavePrefix("Bosh::Clouds::"))
	Expect(response.Error.Message).NotTo(BeEmpty())
}

// expectNoSecrets expects that neither the response nor the log of the call contains a secret.
func (s *scenarioEnv) expectNoSecrets(response director.Response) {
	raw, err := json.Marshal(response)
	Expect(err).NotTo(HaveOccurred())
	Expect(canaryPattern.FindString(string(raw) + response.Stderr)).To(BeEmpty())
}

// expectRetrySucceeds retries the call. It expects the same result as without a fault, or the error that there is nothing to do.
func (s *scenarioEnv) expectRetrySucceeds(ctx context.Context, tc testCase, arguments []any, expected string) {
	method, _ := arguments[0].(string)
	retried, err := s.Call(ctx, method, arguments[1:]...)
	Expect(err).NotTo(HaveOccurred())
	s.expectNoSecrets(retried)
	if retried.Error != nil {
		Expect(retried.Error.Type).To(Equal("Bosh::Clouds::"+tc.scenario.doneError), "the retried call: %s", retried.Stderr)
		return
	}
	Expect(normalizedResult(retried)).To(Equal(expected), "the result of the retried call")
}

// retryAfterPodDeletion retries the call. It may fail with an error of a known type, because its VM or disk may be lost.
func (s *scenarioEnv) retryAfterPodDeletion(ctx context.Context, arguments []any) {
	method, _ := arguments[0].(string)
	retried, err := s.Call(ctx, method, arguments[1:]...)
	Expect(err).NotTo(HaveOccurred())
	s.expectNoSecrets(retried)
	if retried.Error != nil {
		Expect(retried.Error.Type).To(HavePrefix("Bosh::Clouds::"))
	}
}

// deleteAllButBystander deletes everything except the bystander with a director's calls, after another client deleted Pods.
func (s *scenarioEnv) deleteAllButBystander(ctx context.Context) {
	s.deleteUnmanagedPods(ctx)
	for _, vm := range []string{s.vm, s.subject, "agent-" + s.subject} {
		if vm != "" {
			s.mustRetry(ctx, "VMNotFound", "delete_vm", vm)
		}
	}
	for _, disk := range s.listDisks(ctx) {
		if disk == s.disk || !slices.Contains(s.baseline, "PersistentVolumeClaim/"+disk) {
			s.mustRetry(ctx, "DiskNotFound", "delete_disk", disk)
		}
	}
	for _, snapshot := range s.listSnapshots(ctx) {
		s.mustCall(ctx, "delete_snapshot", snapshot)
	}
	Eventually(s.listAllObjects).WithContext(ctx).Should(Equal(s.bystanderObjects))
}

const testCaseReportEntry = "test cases"

var _ = ReportAfterSuite("cases", chaos.ReportCases)
