package attacks

import (
	"fmt"
	"slices"
	"strings"
)

// PossibleTable is the table of docs/trust.md with the attacks that the policy lets pass, whatever its limits are.
func PossibleTable() string {
	var rows [][]string
	for _, attack := range All() {
		if attack.Possible() && attack.RefusingLimits == nil {
			rows = append(rows, []string{attack.Name, attack.Why})
		}
	}
	return markdownTable([]string{"what is possible", "why, or what bounds it"}, rows)
}

// BoundedTable is the table of docs/trust.md with the attacks that the policy refuses with a limit, and not with the shipped ones.
func BoundedTable() string {
	var rows [][]string
	for _, attack := range All() {
		for key, value := range attack.RefusingLimits {
			rows = append(rows, []string{attack.Name, fmt.Sprintf("`%s: %q`", key, value), "`" + strings.Join(attack.Rules, "`, `") + "`", attack.Why})
		}
	}
	return markdownTable([]string{"what is possible", "unless, for example", "rule", "it gives"}, rows)
}

// RefusedTables are the tables of docs/trust.md with the attacks that fail, a heading for each group.
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
		without, refusedBy := "possible", "rule `"+strings.Join(attack.Rules, "` or `")+"`"
		if attack.Forbidden {
			without, refusedBy = "forbidden", "no right"
		}
		rows[attack.Group] = append(rows[attack.Group], []string{attack.Name, without, refusedBy, attack.Why, attack.Source})
	}
	var text strings.Builder
	for _, group := range groups {
		fmt.Fprintf(&text, "#### %s\n\n%s\n", group, markdownTable([]string{"attack", "without the policy", "refused by", "it would give", "known from"}, rows[group]))
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// EscapesTable is the table of docs/trust.md with what root in a VM reaches.
func EscapesTable() string {
	header := []string{"from root in a VM"}
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
		rows = append(rows, append(row, escape.Why))
	}
	return markdownTable(append(header, "why"), rows)
}

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

// Summary is the line that counts all attacks.
func Summary() string {
	all, refused, listed := Count()
	return fmt.Sprintf("attacks: %d refused: %d listed: %d", all, refused, listed)
}
