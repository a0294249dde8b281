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
	partsOfScenarios = 8
	partsOfCells     = 8
)

// A run of all cells plays each scenario in as many turns, which do not wait for each other: some have hundreds of cells.
const turnsOfAll = 4

// FAULTS is "all", or a regular expression for the names of cells; a part is tried without it.
var wantedFaults = os.Getenv("FAULTS")

// cell is one disturbance at one request of a scenario's call.
type cell struct {
	scenario scenario
	n        int
	request  string
	disturbance
}

func (c cell) String() string {
	return fmt.Sprintf("%s, at request %d (%s): %s", c.scenario.name, c.n, alike(c.request), c.name)
}

// wanted reports whether this run tries the cell.
func (c cell) wanted() bool {
	if wantedFaults == "" {
		return c.scenario.core && c.name == killedAfter || c.scenario.drawn && part(c.String(), partsOfCells)
	}
	return wantedFaults == "all" || regexp.MustCompile(wantedFaults).MatchString(c.String())
}

// part reports whether the seed has drawn what is called so, one of as many.
func part(name string, of uint64) bool {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name))
	return (hash.Sum64()+uint64(GinkgoRandomSeed()))%of == 0 //nolint:gosec // a seed is no amount
}

var _ = Describe("Whatever happens at any request of", Label("faults"), func() {
	for i, played := range scenarios() {
		played.drawn = (i+int(GinkgoRandomSeed()))%partsOfScenarios == 0
		if wantedFaults == "" && !played.drawn && !played.core {
			continue
		}
		const holds = ", the call can be repeated and undone, and nothing else changes"
		switch {
		case played.alone:
			It(played.name+holds, Serial, func(ctx context.Context) { play(ctx, played, 0, 1) })
		case wantedFaults == "":
			It(played.name+holds, func(ctx context.Context) { play(ctx, played, 0, 1) })
		default:
			for turn := range turnsOfAll {
				It(fmt.Sprintf("%s%s (turn %d)", played.name, holds, turn+1), func(ctx context.Context) { play(ctx, played, turn, turnsOfAll) })
			}
		}
	}
})

// outcome is what became of a scenario's cells.
type outcome struct {
	Scenario    string
	Requests    int
	Cells, Held int
	Failed      []string
}

// try tries a cell, and notes whether it held.
func (o *outcome) try(c cell, disturb func()) (held bool) {
	o.Cells++
	started := time.Now()
	err := InterceptGomegaFailure(disturb)
	fmt.Fprintf(GinkgoWriter, "%6.1fs %s\n", time.Since(started).Seconds(), c)
	if err != nil {
		o.Failed = append(o.Failed, fmt.Sprintf("%s:\n%v", c, err))
		return false
	}
	o.Held++
	return true
}

// report hands the outcome over to the suite, and fails the spec unless all cells have held.
func (o *outcome) report() {
	AddReportEntry(entryOfCells, *o, ReportEntryVisibilityNever)
	if len(o.Failed) > 0 {
		Fail(strings.Join(o.Failed, "\n\n"))
	}
}

// play tries the scenario's cells, those of one of as many turns.
func play(ctx context.Context, played scenario, turn, turns int) {
	s := newStage(ctx, played)
	undisturbed, requests := s.undisturbed(ctx, played)
	became := outcome{Scenario: played.name, Requests: len(requests)}
	wanted := 0
	for i, request := range requests {
		for _, each := range disturbances() {
			c := cell{scenario: played, n: i + 1, request: request, disturbance: each}
			if each.befalls != nil && !each.befalls(request) || !c.wanted() {
				continue
			}
			wanted++
			if wanted%turns != turn {
				continue
			}
			if held := became.try(c, func() { s.disturb(ctx, c, undisturbed) }); !held || each.taking != nil {
				s = newStage(ctx, played)
			}
		}
	}
	became.report()
}

// undisturbed makes the call as it should be, and returns its answer and its requests.
func (s *stage) undisturbed(ctx context.Context, played scenario) (string, []string) {
	s.prepare(ctx, played)
	arguments := played.call(s)
	s.proxy.Reset(nil)
	method, _ := arguments[0].(string)
	response := s.must(ctx, method, arguments[1:]...)
	requests := s.proxy.Requests()
	s.restored(ctx, played)
	return answer(response), requests
}

func (s *stage) prepare(ctx context.Context, played scenario) {
	if played.begin != nil {
		played.begin(ctx, s)
	}
}

// restored undoes the call, and waits until all is as it was before.
func (s *stage) restored(ctx context.Context, played scenario) {
	if played.undo != nil {
		played.undo(ctx, s)
	}
	Eventually(s.found).WithContext(ctx).WithTimeout(20 * time.Second).Should(Equal(s.clean))
	Expect(s.unmoved(ctx, played.kind == "")).To(Equal(s.at))
}

// disturb makes the call with the cell's disturbance, repeats it, and undoes it.
func (s *stage) disturb(ctx context.Context, c cell, undisturbed string) {
	s.prepare(ctx, c.scenario)
	arguments := c.scenario.call(s)
	first, requests, ended := s.disturbed(ctx, c, arguments)
	s.keepsSecrets(first)
	// Whether an Event is left does not matter to a call, which has its answer already. What was disturbed may be another request
	// than without a disturbance: a watch, where what is waited for had come already.
	if c.n <= len(requests) && isEvent(requests[c.n-1]) {
		c.bearable = true
	}
	if ended == nil && (c.bearable || first.Error != nil) {
		s.bears(c, first, undisturbed)
	}
	if c.taking != nil {
		s.repeatsAfterLoss(ctx, arguments)
		s.clears(ctx)
		return
	}
	if answered := ended == nil && first.Error == nil; !answered || !c.scenario.once {
		s.repeatsWell(ctx, c, arguments, undisturbed)
	}
	s.restored(ctx, c.scenario)
}

// briefTimeouts are those of a call that is kept hanging.
var briefTimeouts = map[string]any{
	"create_vm": "3s", "attach_disk": "3s", "detach_disk": "3s", "delete_vm": "3s", "update_disk": "3s", "create_stemcell": "3s", "other": "3s", "request": "1s",
}

// disturbed makes the call, and returns what it requested. The error tells that its process has ended without an answer.
func (s *stage) disturbed(ctx context.Context, c cell, arguments []any) (director.Response, []string, error) {
	by := s.Director
	if c.brief && !isEvent(c.request) {
		by = s.withTimeouts(briefTimeouts)
	}
	mortal, end := by.Mortal()
	s.proxy.Reset(s.fault(ctx, c, func(signal os.Signal) { _ = end(signal) }))
	defer s.proxy.Reset(nil)
	method, _ := arguments[0].(string)
	response, ended := mortal.Call(ctx, method, arguments[1:]...)
	return response, s.proxy.Requests(), ended
}

func (s *stage) fault(ctx context.Context, c cell, end func(os.Signal)) apiproxy.Fault {
	if c.taking == nil {
		return c.at(c.n, end)
	}
	return func(n int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if n == c.n {
			if pod := ofPod.FindStringSubmatch(r.Method + " " + strings.TrimPrefix(r.URL.Path, "/api/v1/")); pod != nil {
				c.taking(ctx, s, pod[1])
			}
		}
		next.ServeHTTP(w, r)
	}
}

// bears says what an answer of the disturbed call has to be.
func (s *stage) bears(c cell, response director.Response, undisturbed string) {
	if c.bearable {
		Expect(response.Error).To(BeNil(), "the disturbed call: %s", response.Stderr)
		Expect(answer(response)).To(Equal(undisturbed), "the disturbed call's answer")
		return
	}
	Expect(response.Error.Type).To(HavePrefix("Bosh::Clouds::"))
	Expect(response.Error.Message).NotTo(BeEmpty())
}

func (s *stage) keepsSecrets(response director.Response) {
	said, err := json.Marshal(response)
	Expect(err).NotTo(HaveOccurred())
	Expect(canary.FindString(string(said) + response.Stderr)).To(BeEmpty())
}

// repeatsWell makes the call once more: it gives the undisturbed answer, or says that all is done.
func (s *stage) repeatsWell(ctx context.Context, c cell, arguments []any, undisturbed string) {
	method, _ := arguments[0].(string)
	again, err := s.Call(ctx, method, arguments[1:]...)
	Expect(err).NotTo(HaveOccurred())
	s.keepsSecrets(again)
	if again.Error != nil {
		Expect(again.Error.Type).To(Equal("Bosh::Clouds::"+c.scenario.done), "the repeated call: %s", again.Stderr)
		return
	}
	Expect(answer(again)).To(Equal(undisturbed), "the repeated call's answer")
}

// repeatsAfterLoss makes the call once more where its machine or disk may be lost: it may fail, with an error of a known type.
func (s *stage) repeatsAfterLoss(ctx context.Context, arguments []any) {
	method, _ := arguments[0].(string)
	again, err := s.Call(ctx, method, arguments[1:]...)
	Expect(err).NotTo(HaveOccurred())
	s.keepsSecrets(again)
	if again.Error != nil {
		Expect(again.Error.Type).To(HavePrefix("Bosh::Clouds::"))
	}
}

// clears removes all but the bystander with the calls that a director has for that, after others have done their worst.
func (s *stage) clears(ctx context.Context) {
	s.evictSquatters(ctx)
	for _, vm := range []string{s.vm, s.subject, "agent-" + s.subject} {
		if vm != "" {
			s.repeats(ctx, "VMNotFound", "delete_vm", vm)
		}
	}
	for _, disk := range s.disks(ctx) {
		if disk == s.disk || !slices.Contains(s.clean, "PersistentVolumeClaim/"+disk) {
			s.repeats(ctx, "DiskNotFound", "delete_disk", disk)
		}
	}
	for _, snapshot := range s.snapshots(ctx) {
		s.must(ctx, "delete_snapshot", snapshot)
	}
	Eventually(s.found).WithContext(ctx).WithTimeout(20 * time.Second).Should(Equal(s.others))
}

const entryOfCells = "cells"

var _ = ReportAfterSuite("cells", func(report Report) {
	var all outcome
	scenarios := map[string]outcome{}
	for _, spec := range report.SpecReports {
		for _, entry := range spec.ReportEntries {
			if entry.Name != entryOfCells {
				continue
			}
			of, here := entry.GetRawValue().(outcome)
			if !here { // it comes from another process
				Expect(json.Unmarshal([]byte(entry.Value.AsJSON), &of)).To(Succeed())
			}
			all.Cells, all.Held = all.Cells+of.Cells, all.Held+of.Held
			of.Cells, of.Held = of.Cells+scenarios[of.Scenario].Cells, of.Held+scenarios[of.Scenario].Held
			scenarios[of.Scenario] = of
		}
	}
	if all.Cells == 0 {
		return
	}
	fmt.Fprintf(os.Stdout, "\ncells: %d held: %d (seed %d)\n", all.Cells, all.Held, report.SuiteConfig.RandomSeed)
	if path := os.Getenv("FAULTS_TABLE"); path != "" {
		var table strings.Builder
		for _, name := range slices.Sorted(maps.Keys(scenarios)) {
			of := scenarios[name]
			fmt.Fprintf(&table, "| %s | %d | %d | %d |\n", name, of.Requests, of.Cells, of.Held)
		}
		Expect(os.WriteFile(path, []byte("| call | requests | cells | held |\n|---|---|---|---|\n"+table.String()), 0o600)).To(Succeed())
	}
})
