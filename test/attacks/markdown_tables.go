package attacks

import (
	"fmt"
	"strconv"
	"strings"
)

// PossibleTable returns the table in docs/development/attacks.md of the attacks that the policy allows with any limits.
func PossibleTable() string {
	var rows [][]string
	for _, attack := range All() {
		if attack.Possible() && attack.RejectingLimits == nil {
			rows = append(rows, []string{attack.Name, attack.Note})
		}
	}
	return markdownTable([]string{"possible attack", "reason or mitigation"}, rows)
}

// LimitableTable returns the table in docs/development/attacks.md of the attacks that the policy allows with the default limits, and
// rejects with others.
func LimitableTable() string {
	var rows [][]string
	for _, attack := range All() {
		for key, value := range attack.RejectingLimits {
			rows = append(rows, []string{attack.Name, fmt.Sprintf("`%s: %q`", key, value), attack.Note})
		}
	}
	return markdownTable([]string{"possible attack", "limit that prevents it (example)", "gain"}, rows)
}

// RejectedTable returns the table in docs/development/attacks.md with the numbers of attacks that fail.
func RejectedTable() string {
	rejected, forbidden := 0, 0
	for _, attack := range All() {
		switch {
		case attack.Forbidden:
			forbidden++
		case !attack.Possible():
			rejected++
		}
	}
	return markdownTable([]string{"rejected by", "attacks"},
		[][]string{{"a rule of the policy", strconv.Itoa(rejected)}, {"missing permissions", strconv.Itoa(forbidden)}})
}

// EscapesTable returns the table in docs/development/attacks.md of the escapes by root in a VM.
func EscapesTable() string {
	header := []string{"escape"}
	for _, kind := range VMKinds() {
		header = append(header, kind.Name)
	}
	var rows [][]string
	for _, escape := range Escapes() {
		row := []string{escape.Name}
		for _, kind := range VMKinds() {
			switch {
			case !escape.Succeeds(kind.Name, true):
				row = append(row, "no")
			case escape.Succeeds(kind.Name, false):
				row = append(row, "**yes**")
			default:
				row = append(row, "**yes**, on cgroup v1")
			}
		}
		rows = append(rows, append(row, escape.Reason))
	}
	return markdownTable(append(header, "reason"), rows)
}

// markdownTable formats a table in Markdown.
func markdownTable(header []string, rows [][]string) string {
	var table strings.Builder
	line := func(cells []string) { fmt.Fprintf(&table, "| %s |\n", strings.Join(cells, " | ")) }
	line(header)
	fmt.Fprintf(&table, "|%s\n", strings.Repeat("---|", len(header)))
	for _, row := range rows {
		line(row)
	}
	return table.String()
}

// Summary returns the number of attacks, of those that the policy or RBAC rejects, and of those that the docs list as possible.
func Summary() string {
	total, failing, succeeding := Count()
	return fmt.Sprintf("attacks: %d refused: %d listed: %d", total, failing, succeeding)
}
