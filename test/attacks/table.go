package attacks

import (
	"fmt"
	"slices"
	"strings"
)

// Possibilities is the table of docs/trust.md with the attacks that the policy lets pass, whatever its limits are.
func Possibilities() string {
	var rows [][]string
	for _, attack := range All() {
		if attack.Possible() && attack.Bound == nil {
			rows = append(rows, []string{attack.Name, attack.Why})
		}
	}
	return markdown([]string{"what is possible", "why, or what bounds it"}, rows)
}

// Bounded is the table of docs/trust.md with the attacks that the policy refuses with a limit, and not with the shipped ones.
func Bounded() string {
	var rows [][]string
	for _, attack := range All() {
		for key, value := range attack.Bound {
			rows = append(rows, []string{attack.Name, fmt.Sprintf("`%s: %q`", key, value), "`" + strings.Join(attack.Rules, "`, `") + "`", attack.Why})
		}
	}
	return markdown([]string{"what is possible", "unless, for example", "rule", "it gives"}, rows)
}

// Refusals are the tables of docs/trust.md with the attacks that fail, a heading for each group.
func Refusals() string {
	var groups []string
	rows := map[string][][]string{}
	for _, attack := range All() {
		if attack.Possible() {
			continue
		}
		if !slices.Contains(groups, attack.Group) {
			groups = append(groups, attack.Group)
		}
		without, by := "possible", "rule `"+strings.Join(attack.Rules, "` or `")+"`"
		if attack.Forbidden {
			without, by = "forbidden", "no right"
		}
		rows[attack.Group] = append(rows[attack.Group], []string{attack.Name, without, by, attack.Why, attack.From})
	}
	var text strings.Builder
	for _, group := range groups {
		fmt.Fprintf(&text, "#### %s\n\n%s\n", group, markdown([]string{"attack", "without the policy", "refused by", "it would give", "known from"}, rows[group]))
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// Reaches is the table of docs/trust.md with what root in a VM reaches.
func Reaches() string {
	header := []string{"from root in a VM"}
	for _, kind := range Kinds() {
		header = append(header, kind.Name)
	}
	var rows [][]string
	for _, escape := range Escapes() {
		row := []string{escape.Name}
		for _, kind := range Kinds() {
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
	return markdown(append(header, "why"), rows)
}

func markdown(header []string, rows [][]string) string {
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
