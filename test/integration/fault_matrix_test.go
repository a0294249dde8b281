package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/apiproxy"
	"bosh-kubernetes-cpi/test/director"
)

// A run of CI tries a part of the scenarios, and of their cells a part: which, its seed says, so that many runs try all. Processes
// that are killed after a request of a core scenario are tried by each.
const (
	scenarioParts = 8
	testCaseParts = 8
)

// A run of all cells plays each scenario in as many turns, which do not wait for each other: some have hundreds of cells.
const turnsPerScenario = 4

// FAULTS is "all", or a regular expression for the names of cells; a part is tried without it.
var faultsPattern = os.Getenv("FAULTS")

// testCase is one disturbance at one request of a scenario's call.
type testCase struct {
	scenario scenario
	n        int
	request  string
	faultSpec
}

func (tc testCase) String() string {
	return fmt.Sprintf("%s, at request %d (%s): %s", tc.scenario.name, tc.n, normalizeIDs(tc.request), tc.name)
}

// selected reports whether this run tries the cell.
func (tc testCase) selected() bool {
	if faultsPattern == "" {
		return tc.scenario.core && tc.name == killedAfter || tc.scenario.selected && drawnBySeed(tc.String(), testCaseParts)
	}
	return faultsPattern == "all" || regexp.MustCompile(faultsPattern).MatchString(tc.String())
}

// drawnBySeed reports whether the seed has drawn what is called so, one of as many.
func drawnBySeed(name string, parts uint64) bool {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name))
	return (hash.Sum64()+uint64(GinkgoRandomSeed()))%parts == 0 //nolint:gosec // a seed is no amount
}

var _ = Describe("Whatever happens at any request of", Label("faults"), func() {
	for i, sc := range scenarios() {
		sc.selected = (i+int(GinkgoRandomSeed()))%scenarioParts == 0
		if faultsPattern == "" && !sc.selected && !sc.core {
			continue
		}
		const description = ", the call can be repeated and undone, and nothing else changes"
		switch {
		case sc.serial:
			It(sc.name+description, Serial, func(ctx context.Context) { runScenario(ctx, sc, 0, 1) })
		case faultsPattern == "":
			It(sc.name+description, func(ctx context.Context) { runScenario(ctx, sc, 0, 1) })
		default:
			for turn := range turnsPerScenario {
				It(fmt.Sprintf("%s%s (turn %d)", sc.name, description, turn+1), func(ctx context.Context) { runScenario(ctx, sc, turn, turnsPerScenario) })
			}
		}
	}
})

// scenarioResult is what became of a scenario's cells.
type scenarioResult struct {
	Scenario    string
	Requests    int
	Cells, Held int
	Failed      []string
}

// record tries a cell, and notes whether it held.
func (r *scenarioResult) record(tc testCase, run func()) (passed bool) {
	r.Cells++
	started := time.Now()
	err := InterceptGomegaFailure(run)
	fmt.Fprintf(GinkgoWriter, "%6.1fs %s\n", time.Since(started).Seconds(), tc)
	if err != nil {
		r.Failed = append(r.Failed, fmt.Sprintf("%s:\n%v", tc, err))
		return false
	}
	r.Held++
	return true
}

// addToReport hands the outcome over to the suite, and fails the spec unless all cells have held.
func (r *scenarioResult) addToReport() {
	AddReportEntry(testCaseReportEntry, *r, ReportEntryVisibilityNever)
	if len(r.Failed) > 0 {
		Fail(strings.Join(r.Failed, "\n\n"))
	}
}

// runScenario tries the scenario's cells, those of one of as many turns.
func runScenario(ctx context.Context, sc scenario, turn, turns int) {
	s := newScenarioEnv(ctx, sc)
	undisturbed, requests := s.callWithoutFault(ctx, sc)
	result := scenarioResult{Scenario: sc.name, Requests: len(requests)}
	selectedCount := 0
	for i, request := range requests {
		for _, spec := range allFaults() {
			tc := testCase{scenario: sc, n: i + 1, request: request, faultSpec: spec}
			if spec.appliesTo != nil && !spec.appliesTo(request) || !tc.selected() {
				continue
			}
			selectedCount++
			if selectedCount%turns != turn {
				continue
			}
			if passed := result.record(tc, func() { s.runTestCase(ctx, tc, undisturbed) }); !passed || spec.deletePod != nil {
				s = newScenarioEnv(ctx, sc)
			}
		}
	}
	result.addToReport()
}

// callWithoutFault makes the call as it should be, and returns its answer and its requests.
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

func (s *scenarioEnv) runBeforeCall(ctx context.Context, sc scenario) {
	if sc.beforeCall != nil {
		sc.beforeCall(ctx, s)
	}
}

// undoAndVerify undoes the call, and waits until all is as it was before.
func (s *scenarioEnv) undoAndVerify(ctx context.Context, sc scenario) {
	if sc.undo != nil {
		sc.undo(ctx, s)
	}
	Eventually(s.listAllObjects).WithContext(ctx).WithTimeout(20 * time.Second).Should(Equal(s.baseline))
	Expect(s.invariantState(ctx, sc.strategy == "")).To(Equal(s.baselineState))
}

// runTestCase makes the call with the cell's disturbance, repeats it, and undoes it.
func (s *scenarioEnv) runTestCase(ctx context.Context, tc testCase, expected string) {
	s.runBeforeCall(ctx, tc.scenario)
	arguments := tc.scenario.call(s)
	first, requests, callErr := s.callWithFault(ctx, tc, arguments)
	s.expectNoSecrets(first)
	// Whether an Event is left does not matter to a call, which has its answer already. What was disturbed may be another request
	// than without a disturbance: a watch, where what is waited for had come already.
	if tc.n <= len(requests) && isEvent(requests[tc.n-1]) {
		tc.tolerated = true
	}
	if callErr == nil && (tc.tolerated || first.Error != nil) {
		s.expectFaultedResponse(tc, first, expected)
	}
	if tc.deletePod != nil {
		s.repeatAfterPodDeletion(ctx, arguments)
		s.deleteAllButBystander(ctx)
		return
	}
	if answered := callErr == nil && first.Error == nil; !answered || !tc.scenario.notIdempotent {
		s.expectRepeatSucceeds(ctx, tc, arguments, expected)
	}
	s.undoAndVerify(ctx, tc.scenario)
}

// shortTimeouts are those of a call that is kept hanging.
var shortTimeouts = map[string]any{
	"create_vm": "3s", "attach_disk": "3s", "detach_disk": "3s", "delete_vm": "3s", "update_disk": "3s", "create_stemcell": "3s", "other": "3s", "request": "1s",
}

// callWithFault makes the call, and returns what it requested. The error tells that its process has ended without an answer.
func (s *scenarioEnv) callWithFault(ctx context.Context, tc testCase, arguments []any) (director.Response, []string, error) {
	caller := s.Director
	if tc.shortTimeout && !isEvent(tc.request) {
		caller = s.directorWithTimeouts(shortTimeouts)
	}
	killable, sendSignal := caller.Killable()
	s.proxy.Reset(s.testCaseFault(ctx, tc, func(signal os.Signal) { _ = sendSignal(signal) }))
	defer s.proxy.Reset(nil)
	method, _ := arguments[0].(string)
	response, callErr := killable.Call(ctx, method, arguments[1:]...)
	return response, s.proxy.Requests(), callErr
}

func (s *scenarioEnv) testCaseFault(ctx context.Context, tc testCase, sendSignal func(os.Signal)) apiproxy.Fault {
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

// expectFaultedResponse says what an answer of the disturbed call has to be.
func (s *scenarioEnv) expectFaultedResponse(tc testCase, response director.Response, expected string) {
	if tc.tolerated {
		Expect(response.Error).To(BeNil(), "the disturbed call: %s", response.Stderr)
		Expect(normalizedResult(response)).To(Equal(expected), "the disturbed call's answer")
		return
	}
	Expect(response.Error.Type).To(HavePrefix("Bosh::Clouds::"))
	Expect(response.Error.Message).NotTo(BeEmpty())
}

func (s *scenarioEnv) expectNoSecrets(response director.Response) {
	raw, err := json.Marshal(response)
	Expect(err).NotTo(HaveOccurred())
	Expect(canaryPattern.FindString(string(raw) + response.Stderr)).To(BeEmpty())
}

// expectRepeatSucceeds makes the call once more: it gives the undisturbed answer, or says that all is done.
func (s *scenarioEnv) expectRepeatSucceeds(ctx context.Context, tc testCase, arguments []any, expected string) {
	method, _ := arguments[0].(string)
	again, err := s.Call(ctx, method, arguments[1:]...)
	Expect(err).NotTo(HaveOccurred())
	s.expectNoSecrets(again)
	if again.Error != nil {
		Expect(again.Error.Type).To(Equal("Bosh::Clouds::"+tc.scenario.doneError), "the repeated call: %s", again.Stderr)
		return
	}
	Expect(normalizedResult(again)).To(Equal(expected), "the repeated call's answer")
}

// repeatAfterPodDeletion makes the call once more where its machine or disk may be lost: it may fail, with an error of a known type.
func (s *scenarioEnv) repeatAfterPodDeletion(ctx context.Context, arguments []any) {
	method, _ := arguments[0].(string)
	again, err := s.Call(ctx, method, arguments[1:]...)
	Expect(err).NotTo(HaveOccurred())
	s.expectNoSecrets(again)
	if again.Error != nil {
		Expect(again.Error.Type).To(HavePrefix("Bosh::Clouds::"))
	}
}

// deleteAllButBystander removes all but the bystander with the calls that a director has for that, after others have done their worst.
func (s *scenarioEnv) deleteAllButBystander(ctx context.Context) {
	s.deleteForeignPods(ctx)
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
	Eventually(s.listAllObjects).WithContext(ctx).WithTimeout(20 * time.Second).Should(Equal(s.bystanderObjects))
}

const testCaseReportEntry = "cells"

var _ = ReportAfterSuite("cells", func(report Report) {
	var all scenarioResult
	results := map[string]scenarioResult{}
	for _, spec := range report.SpecReports {
		for _, entry := range spec.ReportEntries {
			if entry.Name != testCaseReportEntry {
				continue
			}
			result, ok := entry.GetRawValue().(scenarioResult)
			if !ok { // it comes from another process
				Expect(json.Unmarshal([]byte(entry.Value.AsJSON), &result)).To(Succeed())
			}
			all.Cells, all.Held = all.Cells+result.Cells, all.Held+result.Held
			result.Cells, result.Held = result.Cells+results[result.Scenario].Cells, result.Held+results[result.Scenario].Held
			results[result.Scenario] = result
		}
	}
	if all.Cells == 0 {
		return
	}
	fmt.Fprintf(os.Stdout, "\ncells: %d held: %d (seed %d)\n", all.Cells, all.Held, report.SuiteConfig.RandomSeed)
	if path := os.Getenv("FAULTS_TABLE"); path != "" {
		var table strings.Builder
		for _, name := range slices.Sorted(maps.Keys(results)) {
			result := results[name]
			fmt.Fprintf(&table, "| %s | %d | %d | %d |\n", name, result.Requests, result.Cells, result.Held)
		}
		Expect(os.WriteFile(path, []byte("| call | requests | cells | held |\n|---|---|---|---|\n"+table.String()), 0o600)).To(Succeed())
	}
})
