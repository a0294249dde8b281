package preflight

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Write writes the results as a table, with the advice below each result that has some, or as a JSON array.
func Write(out io.Writer, results []Result, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(results)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CHECK\tKIND\tRESULT\tDETAIL AND ADVICE")
	for _, result := range results {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", result.Check, result.Kind, result.Verdict, inOneLine(result.Detail))
		if result.Advice != "" {
			fmt.Fprintf(table, "\t\t\t→ %s\n", inOneLine(result.Advice))
		}
	}
	return table.Flush()
}

// inOneLine joins the lines of s: messages of policies and webhooks may have several.
func inOneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
