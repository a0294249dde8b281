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

// entry is a row or a list's item of the page about errors.
type entry struct {
	said  string // a gap in the place of words in brackets; with a gap at its end, the beginning of a message
	kind  string // the type on the wire, where the entry or the heading above says it
	claim []string
}

var (
	bracketed = regexp.MustCompile(`<[^>]*>`)
	item      = regexp.MustCompile("^(?:- |\\| )(`+)(.*?[^`])(`+)(?: \\||$)")
	column    = regexp.MustCompile("^\\| `+[^|]*`+ \\| `(\\w+)` \\|")
	firstCell = regexp.MustCompile(`^\| (\w+) \|`)
	section   = regexp.MustCompile("^## (?:`(\\w+)`)?")
)

// entries are those of the page: the items of lists, and the rows of tables of messages.
func entries() []*entry {
	GinkgoHelper()
	var found []*entry
	table, kind := "", ""
	for line := range strings.SplitSeq(read(errorsPage).prose, "\n") {
		if head := firstCell.FindStringSubmatch(line); head != nil {
			table = head[1]
		}
		if of := section.FindStringSubmatch(line); of != nil {
			kind = of[1]
		}
		match := item.FindStringSubmatch(line)
		if len(match) == 0 || match[1] != match[3] || strings.HasPrefix(line, "|") && table != "message" {
			continue
		}
		each := &entry{said: normal(bracketed.ReplaceAllString(match[2], gap)), kind: kind}
		if of := column.FindStringSubmatch(line); of != nil {
			each.kind = of[1]
		}
		found = append(found, each)
	}
	return found
}

// of is the entry for a message: the one that is the message, or else the longest that begins it; nil when there is none.
func of(all []*entry, said string) *entry {
	var longest *entry
	for _, each := range all {
		switch beginning, open := strings.CutSuffix(each.said, gap); {
		case each.said == said:
			return each
		case open && strings.HasPrefix(said, beginning) && (longest == nil || len(longest.said) < len(each.said)):
			longest = each
		}
	}
	return longest
}

// wire are the names of errors' types on the wire, without what they all begin with, by the code's constants.
func wire() map[string]string {
	GinkgoHelper()
	file, err := parser.ParseFile(token.NewFileSet(), errorsKinds, content(errorsKinds), parser.SkipObjectResolution)
	Expect(err).NotTo(HaveOccurred())
	found := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		constant, ok := node.(*ast.ValueSpec)
		if !ok || last(constant.Type) != "Kind" {
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
		all := entries()
		var missing []string
		for said := range messages() {
			if known := of(all, said); known != nil {
				known.claim = append(known.claim, said)
			} else {
				missing = append(missing, said)
			}
		}
		var without, several []string
		for _, each := range all {
			switch {
			case len(each.claim) == 0:
				without = append(without, each.said)
			case len(each.claim) > 1:
				several = append(several, each.said+": "+strings.Join(each.claim, " | "))
			}
		}
		slices.Sort(missing)
		Expect(len(all)).To(BeNumerically(">", 200))
		Expect(missing).To(BeEmpty(), "messages without an entry")
		Expect(without).To(BeEmpty(), "entries without a message")
		Expect(several).To(BeEmpty(), "entries that are too short to tell messages apart")
	})

	It("says the type that each message has", func() {
		all, names := entries(), wire()
		for said, kinds := range messages() {
			known := of(all, said)
			if known == nil || known.kind == "" {
				continue
			}
			for _, kind := range kinds {
				Expect(known.kind).To(Equal(names[kind]), said)
			}
		}
	})

	It("has a row for each type, and no other", func() {
		var told, known []string
		for _, name := range wire() {
			known = append(known, name)
		}
		table := ""
		for line := range strings.SplitSeq(read(errorsPage).prose, "\n") {
			if head := firstCell.FindStringSubmatch(line); head != nil {
				table = head[1]
			}
			if match := item.FindStringSubmatch(line); match != nil && table == "type" && strings.HasPrefix(line, "|") {
				told = append(told, match[2])
			}
		}
		Expect(told).To(ConsistOf(known))
	})
})

var _ = DescribeTable("The message of an error, in the code,",
	func(code, said, kind string) {
		made, err := parser.ParseExpr(code)
		Expect(err).NotTo(HaveOccurred())
		gotSaid, gotKind := told(made.(*ast.CallExpr))
		Expect([]string{gotSaid, gotKind}).To(Equal([]string{said, kind}))
	},
	Entry("has gaps", `call.CloudError.Errorf("disk %s of %q: %w", a, b, err)`, "disk … of …: …", "CloudError"),
	Entry("may be put together", `call.Invalid("a "+key+"%d"+b, 1)`, "a …", "CPIError"),
	Entry("may be made by another function", `s.ExplainTimeout(pod, err, fmt.Sprintf("disk %s stays", disk))`, "disk … stays", ""),
	Entry("has the type that the code around it gives", `fmt.Errorf("%d%% of it", n)`, "…% of it", ""),
	Entry("is none of another function's", `log.Info("disk %s", disk)`, "", ""),
)
