package attacks

import (
	"fmt"
	"slices"
	"strings"
)

// PossibleTable returns the table of docs/trust.md with the attacks that the policy admits with any limits.
func PossibleTable() string {
	var rows [][]string
	for _, attack := range All() {
		if attack.Possible() && attack.RefusingLimits == nil {
			rows = append(rows, []string{attack.Name, attack.Note})
		}
	}
	return markdownTable([]string{"possible attack", "reason or mitigation"}, rows)
}

// BoundedTable returns the table of docs/trust.md with the attacks that the policy admits with the default limits, and refuses with
// others.
func BoundedTable() string {
	var rows [][]string
	for _, attack := range All() {
		for key, value := range attack.RefusingLimits {
			limit, rules := fmt.Sprintf("`%s: %q`", key, value), "`"+strings.Join(attack.Rules, "`, `")+"`"
			rows = append(rows, []string{attack.Name, limit, rules, attack.Note})
		}
	}
	return markdownTable([]string{"possible attack", "limit that prevents it (example)", "rule", "gain"}, rows)
}

// RefusedTables returns the tables of docs/trust.md with the attacks that fail, with a heading for each group.
func RefusedTables() string {
	var groups []string
	rows := map[string][][]string{}
	for _, attack := range All() {
		if attack.Possible() {
			continue
		}
		if !slices.Contains(groups, attack.Group) {
			groups = append(groups, attack.Group)
		}
		withoutPolicy, refusedBy := "possible", "rule `"+strings.Join(attack.Rules, "` or `")+"`"
		if attack.Forbidden {
			withoutPolicy, refusedBy = "forbidden", "no right"
		}
		rows[attack.Group] = append(rows[attack.Group], []string{attack.Name, withoutPolicy, refusedBy, attack.Note, attack.Source})
	}
	var text strings.Builder
	header := []string{"attack", "without the policy", "refused by", "gain", "source"}
	for _, group := range groups {
		fmt.Fprintf(&text, "#### %s\n\n%s\n", group, markdownTable(header, rows[group]))
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// EscapesTable returns the table of docs/trust.md with the escapes of root in a VM.
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
	var text strings.Builder
	line := func(cells []string) { fmt.Fprintf(&text, "| %s |\n", strings.Join(cells, " | ")) }
	line(header)
	fmt.Fprintf(&text, "|%s\n", strings.Repeat("---|", len(header)))
	for _, row := range rows {
		line(row)
	}
	return text.String()
}

// Summary returns a line with the numbers of attacks.
func Summary() string {
	total, failing, succeeding := Count()
	return fmt.Sprintf("attacks: %d failing: %d succeeding: %d", total, failing, succeeding)
}
