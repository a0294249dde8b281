package preflight

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Write writes the results: a line each, and below it what to do where something is to be done; or an array of JSON.
func Write(out io.Writer, results []Result, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(results)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CHECK\tKIND\tRESULT\tWHAT IS THERE, AND WHAT TO DO")
	for _, result := range results {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", result.Check, result.Kind, result.Verdict, inOneLine(result.Detail))
		if result.Advice != "" {
			fmt.Fprintf(table, "\t\t\t→ %s\n", inOneLine(result.Advice))
		}
	}
	return table.Flush()
}

// inOneLine is the text as a cell can hold it: what policies and webhooks say may have several lines.
func inOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
