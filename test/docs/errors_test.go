package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	errorsPage  = "docs/errors.md"
	errorsKinds = "cpi/call/errors.go"
)

// errorEntry is a row or a list's item of the page about errors.
type errorEntry struct {
	message string // a gap in the place of words in brackets; with a gap at its end, the beginning of a message
	kind    string // the type on the wire, where the entry or the heading above says it
	matches []string
}

var (
	bracketPattern = regexp.MustCompile(`<[^>]*>`)
	itemPattern    = regexp.MustCompile("^(?:- |\\| )(`+)(.*?[^`])(`+)(?: \\||$)")
	typeColumn     = regexp.MustCompile("^\\| `+[^|]*`+ \\| `(\\w+)` \\|")
	firstCell      = regexp.MustCompile(`^\| (\w+) \|`)
	section        = regexp.MustCompile("^## (?:`(\\w+)`)?")
)

// errorEntries are those of the page: the items of lists, and the rows of tables of messages.
func errorEntries() []*errorEntry {
	GinkgoHelper()
	var found []*errorEntry
	table, kind := "", ""
	for line := range strings.SplitSeq(parsePage(errorsPage).prose, "\n") {
		if head := firstCell.FindStringSubmatch(line); head != nil {
			table = head[1]
		}
		if of := section.FindStringSubmatch(line); of != nil {
			kind = of[1]
		}
		match := itemPattern.FindStringSubmatch(line)
		if len(match) == 0 || match[1] != match[3] || strings.HasPrefix(line, "|") && table != "message" {
			continue
		}
		entry := &errorEntry{message: normalize(bracketPattern.ReplaceAllString(match[2], placeholder)), kind: kind}
		if of := typeColumn.FindStringSubmatch(line); of != nil {
			entry.kind = of[1]
		}
		found = append(found, entry)
	}
	return found
}

// findEntry is the entry for a message: the one that is the message, or else the longest that begins it; nil when there is none.
func findEntry(all []*errorEntry, message string) *errorEntry {
	var longest *errorEntry
	for _, entry := range all {
		switch beginning, open := strings.CutSuffix(entry.message, placeholder); {
		case entry.message == message:
			return entry
		case open && strings.HasPrefix(message, beginning) && (longest == nil || len(longest.message) < len(entry.message)):
			longest = entry
		}
	}
	return longest
}

// wireTypes are the names of errors' types on the wire, without what they all begin with, by the code's constants.
func wireTypes() map[string]string {
	GinkgoHelper()
	file, err := parser.ParseFile(token.NewFileSet(), errorsKinds, readFile(errorsKinds), parser.SkipObjectResolution)
	Expect(err).NotTo(HaveOccurred())
	found := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		constant, ok := node.(*ast.ValueSpec)
		if !ok || lastName(constant.Type) != "ErrorKind" {
			return true
		}
		name, err := strconv.Unquote(constant.Values[0].(*ast.BasicLit).Value)
		Expect(err).NotTo(HaveOccurred())
		found[constant.Names[0].Name] = strings.TrimPrefix(name, "Bosh::Clouds::")
		return true
	})
	Expect(found).NotTo(BeEmpty())
	return found
}

var _ = Describe("The page about errors", func() {
	It("has an entry for each message that the code can answer with, and no other", func() {
		all := errorEntries()
		var missing []string
		for message := range messages() {
			if known := findEntry(all, message); known != nil {
				known.matches = append(known.matches, message)
			} else {
				missing = append(missing, message)
			}
		}
		var without, several []string
		for _, entry := range all {
			switch {
			case len(entry.matches) == 0:
				without = append(without, entry.message)
			case len(entry.matches) > 1:
				several = append(several, entry.message+": "+strings.Join(entry.matches, " | "))
			}
		}
		slices.Sort(missing)
		Expect(len(all)).To(BeNumerically(">", 200))
		Expect(missing).To(BeEmpty(), "messages without an entry")
		Expect(without).To(BeEmpty(), "entries without a message")
		Expect(several).To(BeEmpty(), "entries that are too short to tell messages apart")
	})

	It("says the type that each message has", func() {
		all, names := errorEntries(), wireTypes()
		for message, kinds := range messages() {
			known := findEntry(all, message)
			if known == nil || known.kind == "" {
				continue
			}
			for _, kind := range kinds {
				Expect(known.kind).To(Equal(names[kind]), message)
			}
		}
	})

	It("has a row for each type, and no other", func() {
		var documented, known []string
		for _, name := range wireTypes() {
			known = append(known, name)
		}
		table := ""
		for line := range strings.SplitSeq(parsePage(errorsPage).prose, "\n") {
			if head := firstCell.FindStringSubmatch(line); head != nil {
				table = head[1]
			}
			if match := itemPattern.FindStringSubmatch(line); match != nil && table == "type" && strings.HasPrefix(line, "|") {
				documented = append(documented, match[2])
			}
		}
		Expect(documented).To(ConsistOf(known))
	})
})

var _ = DescribeTable("The message of an error, in the code,",
	func(code, message, kind string) {
		expression, err := parser.ParseExpr(code)
		Expect(err).NotTo(HaveOccurred())
		gotSaid, gotKind := errorMessage(expression.(*ast.CallExpr))
		Expect([]string{gotSaid, gotKind}).To(Equal([]string{message, kind}))
	},
	Entry("has gaps", `call.CloudError.Errorf("disk %s of %q: %w", a, b, err)`, "disk … of …: …", "CloudError"),
	Entry("may be put together", `call.Invalid("a "+key+"%d"+b, 1)`, "a …", "CPIError"),
	Entry("may be made by another function", `s.ExplainTimeout(pod, err, fmt.Sprintf("disk %s stays", disk))`, "disk … stays", ""),
	Entry("has the type that the code around it gives", `fmt.Errorf("%d%% of it", n)`, "…% of it", ""),
	Entry("is none of another function's", `log.Info("disk %s", disk)`, "", ""),
)
