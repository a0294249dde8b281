package preflight

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Write writes the results as a table, with the remedy below each result that has some, or as a JSON array. The table has one row for
// all skipped checks.
func Write(out io.Writer, results []Result, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(results)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CHECK\tKIND\tRESULT\tDETAIL AND REMEDY")
	skippedChecks := 0
	for _, result := range results {
		if result.Detail == skipped {
			skippedChecks++
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", result.Check, result.Kind, result.Verdict, inOneLine(result.Detail))
		if result.Remedy != "" {
			fmt.Fprintf(table, "\t\t\t→ %s\n", inOneLine(result.Remedy))
		}
	}
	if skippedChecks > 0 {
		fmt.Fprintf(table, "(%d others)\t\t%s\t%s, see %s\n", skippedChecks, Unknown, skipped, checkAPI)
	}
	return table.Flush()
}

// inOneLine joins the lines of s: messages of policies and webhooks may have several.
func inOneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Result is a row of the report.
type Result struct {
	Check   string  `json:"check"`
	Kind    Kind    `json:"kind"`
	Verdict Verdict `json:"result"`
	Detail  string  `json:"detail"`
	Remedy  string  `json:"remedy"`
}

// Failed returns the results of the checks that failed.
func Failed(results []Result) []Result {
	return slices.DeleteFunc(slices.Clone(results), func(result Result) bool { return result.Verdict != Fails })
}

// Summary describes the results in a line.
func Summary(results []Result) string {
	counts := map[Verdict]int{}
	for _, result := range results {
		counts[result.Verdict]++
	}
	outcome := "all required checks passed"
	if !Passed(results) {
		outcome = "a required check failed"
	}
	return fmt.Sprintf("%d checks: %d %s, %d %s, %d %s; %s",
		len(results), counts[OK], OK, counts[Fails], Fails, counts[Unknown], Unknown, outcome)
}

// Passed reports whether no required check failed.
func Passed(results []Result) bool {
	return !slices.ContainsFunc(results, func(result Result) bool { return result.Kind == Required && result.Verdict == Fails })
}
