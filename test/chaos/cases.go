package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// Cases contains the counts of a group of cases, and the failures.
type Cases struct {
	Group         string
	Requests      int // of the group's call without a fault, if it has one
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

// PrintTotal prints how many cases of a kind passed in the suite, and returns the groups by name.
func PrintTotal(suite ginkgo.Report, kind string) map[string]Cases {
	groups := map[string]Cases{}
	var total Cases
	for _, spec := range suite.SpecReports {
		for _, entry := range spec.ReportEntries {
			if entry.Name != kind {
				continue
			}
			added, ok := entry.GetRawValue().(Cases)
			if !ok { // the entry is from another Ginkgo process
				gomega.Expect(json.Unmarshal([]byte(entry.Value.AsJSON), &added)).To(gomega.Succeed())
			}
			total.Tried, total.Passed = total.Tried+added.Tried, total.Passed+added.Passed
			previous := groups[added.Group]
			added.Tried, added.Passed = added.Tried+previous.Tried, added.Passed+previous.Passed
			groups[added.Group] = added
		}
	}
	if total.Tried > 0 {
		fmt.Fprintf(os.Stdout, "\n%s: %d in %d groups, passed: %d (seed %d)\n", kind, total.Tried, len(groups), total.Passed, suite.SuiteConfig.RandomSeed)
	}
	return groups
}
