package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/bench/report"
)

// Cases contains the counts of a group of cases, and the failures.
type Cases struct {
	Group         string
	Tried, Passed int
	Failed        []string
}

// Try runs a case. It does not count if run returns false and no expectation fails, because the case does not apply.
func (c *Cases) Try(name fmt.Stringer, run func() (applies bool)) (applies, passed bool) {
	started := time.Now()
	failure := gomega.InterceptGomegaFailure(func() { applies = run() })
	fmt.Fprintf(ginkgo.GinkgoWriter, "%6.1fs %s\n", time.Since(started).Seconds(), name)
	if failure != nil {
		fmt.Fprintf(ginkgo.GinkgoWriter, "failed: %s\n%v\n", name, failure)
		c.Failed = append(c.Failed, fmt.Sprintf("%s:\n%v", name, failure))
		c.Tried++
		return true, false
	}
	if applies {
		c.Tried++
		c.Passed++
	}
	return applies, true
}

// AddToReport adds groups to the report of the suite, and fails the spec unless all cases passed. kind is the plural of the cases.
func AddToReport(kind string, groups ...Cases) {
	var failed []string
	for _, group := range groups {
		if group.Tried > 0 {
			ginkgo.AddReportEntry(kind, group, ginkgo.ReportEntryVisibilityNever)
		}
		failed = append(failed, group.Failed...)
	}
	if len(failed) > 0 {
		ginkgo.Fail(strings.Join(failed, "\n\n"))
	}
}

// Record contains the counts of a run.
type Record struct {
	report.Run
	Host    report.Host `json:"host"`
	Seed    int64       `json:"seed"`
	Minutes int         `json:"minutes"`
	Specs   int         `json:"specs"`
	Failed  int         `json:"failed"` // specs
	// Cases are the cases of each kind.
	Cases map[string]Total `json:"cases"`
}

// Total contains the counts of the groups of a kind.
type Total struct {
	Groups int `json:"groups"`
	Tried  int `json:"tried"`
	Passed int `json:"passed"`
}

// ReportCases prints how many cases of each kind passed in the suite. If RECORD is set, it also writes a Record to this file.
func ReportCases(ctx ginkgo.SpecContext, suite ginkgo.Report) {
	record := Record{Run: report.NewRun(ctx), Host: report.CurrentHost(), Seed: suite.SuiteConfig.RandomSeed,
		Minutes: int(time.Since(suite.StartTime).Minutes()), Cases: map[string]Total{}}
	groups := map[string]bool{}
	for _, spec := range suite.SpecReports {
		if spec.LeafNodeType == types.NodeTypeIt && spec.State.Is(types.SpecStatePassed|types.SpecStateFailureStates) {
			record.Specs++
		}
		if spec.Failed() {
			record.Failed++
		}
		for _, entry := range spec.ReportEntries {
			added, isCases := casesOf(entry)
			if !isCases {
				continue
			}
			total := record.Cases[entry.Name]
			if group := entry.Name + ": " + added.Group; !groups[group] {
				groups[group] = true
				total.Groups++
			}
			total.Tried, total.Passed = total.Tried+added.Tried, total.Passed+added.Passed
			record.Cases[entry.Name] = total
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(record.Cases)) {
		total := record.Cases[kind]
		fmt.Fprintf(os.Stdout, "\n%s: %d in %d groups, passed: %d (seed %d)\n", kind, total.Tried, total.Groups, total.Passed, record.Seed)
	}
	if path := os.Getenv("RECORD"); path != "" {
		content, err := json.MarshalIndent(record, "", " ")
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		gomega.Expect(os.WriteFile(path, append(content, '\n'), 0o644)).To(gomega.Succeed())
	}
}

// casesOf returns the cases of a report entry, which may be from another Ginkgo process.
func casesOf(entry types.ReportEntry) (cases Cases, isCases bool) {
	if cases, isCases = entry.GetRawValue().(Cases); isCases {
		return cases, true
	}
	decoder := json.NewDecoder(strings.NewReader(entry.Value.AsJSON))
	decoder.DisallowUnknownFields()
	return cases, decoder.Decode(&cases) == nil && cases.Group != ""
}
