package docs

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const architecture = "docs/development/architecture.md"

// Pictures are Mermaid's, which GitHub draws: https://mermaid.js.org/intro/.
var (
	diagramKinds = []string{"flowchart", "sequenceDiagram", "stateDiagram-v2", "classDiagram", "erDiagram", "timeline", "gantt"}
	// Words of a flowchart's own. As a name they break it.
	reservedWords = []string{"call", "class", "classDef", "click", "default", "end", "graph", "href", "linkStyle", "style", "subgraph"}

	edgePattern        = regexp.MustCompile(`^\s*(\w+)(?:\["([^"]*)"\])? --> (\w+)(?:\["([^"]*)"\])?$`)
	participantPattern = regexp.MustCompile(`^\s*participant (\w+)`)
	messagePattern     = regexp.MustCompile(`^\s*(\w+)-?->>(\w+): \S`)
)

// diagrams are the Mermaid blocks of all pages, by where they are.
func diagrams() map[string]string {
	GinkgoHelper()
	found := map[string]string{}
	for _, p := range pages() {
		for _, b := range p.blocks {
			if b.language == "mermaid" {
				found[p.at(b)] = b.text
			}
		}
	}
	Expect(found).NotTo(BeEmpty())
	return found
}

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }

var _ = Describe("Blocks of code", func() {
	It("end", func() {
		for _, p := range pages() {
			Expect(p.open).To(BeFalse(), "the last block of %s has no end", p.path)
		}
	})
})

var _ = Describe("Pictures", func() {
	It("are of a kind that Mermaid draws, and have something in them", func() {
		for at, text := range diagrams() {
			kind, _, _ := strings.Cut(lines(text)[0], " ")
			Expect(diagramKinds).To(ContainElement(kind), at)
			Expect(len(lines(text))).To(BeNumerically(">", 2), at)
		}
	})

	It("have no semicolon, which ends a statement in the middle of a sentence", func() {
		for at, text := range diagrams() {
			Expect(text).NotTo(ContainSubstring(";"), at)
		}
	})

	It("of what calls what name only participants that are declared, and close what they open", func() {
		for at, text := range diagrams() {
			if !strings.HasPrefix(text, "sequenceDiagram") {
				continue
			}
			var known []string
			open := 0
			for _, line := range lines(text)[1:] {
				first, _, _ := strings.Cut(strings.TrimSpace(line), " ")
				if declared := participantPattern.FindStringSubmatch(line); declared != nil {
					known = append(known, declared[1])
					continue
				}
				switch first {
				case "alt", "loop", "opt", "par":
					open++
				case "end":
					open--
				case "else", "and", "Note":
				default:
					ends := messagePattern.FindStringSubmatch(line)
					Expect(ends).NotTo(BeNil(), "%s: %q is no message", at, line)
					Expect(known).To(And(ContainElement(ends[1]), ContainElement(ends[2])), "%s: %q", at, line)
				}
			}
			Expect(open).To(BeZero(), at)
		}
	})

	It("of arrows have no name that is a word of Mermaid's", func() {
		for at, text := range diagrams() {
			if !strings.HasPrefix(text, "flowchart") {
				continue
			}
			for _, line := range lines(text)[1:] {
				ends := edgePattern.FindStringSubmatch(line)
				Expect(ends).NotTo(BeNil(), "%s: %q is no arrow", at, line)
				Expect(reservedWords).NotTo(ContainElement(BeElementOf(ends[1], ends[3])), "%s: %q", at, line)
			}
		}
	})
})

var _ = Describe("The picture of the rooms", func() {
	It("has the arrows that imports make, but for those that a longer way makes too", func() {
		Expect(diagramEdges()).To(ConsistOf(transitiveReduction(packageImports())))
	})
})

// diagramEdges are the arrows of the architecture's first picture, as "from -> to".
func diagramEdges() []string {
	GinkgoHelper()
	var found []string
	labels := map[string]string{}
	first := slices.IndexFunc(parsePage(architecture).blocks, func(b block) bool { return b.language == "mermaid" })
	Expect(first).NotTo(Equal(-1))
	for _, line := range lines(parsePage(architecture).blocks[first].text)[1:] {
		ends := edgePattern.FindStringSubmatch(line)
		Expect(ends).NotTo(BeNil(), line)
		for i := 1; i < len(ends); i += 2 {
			if ends[i+1] != "" {
				labels[ends[i]] = ends[i+1]
			}
			Expect(labels).To(HaveKey(ends[i]), "%q names a room before it says which it is", line)
		}
		found = append(found, labels[ends[1]]+" -> "+labels[ends[3]])
	}
	return found
}

// packageImports are what each package of the product, and of the programs beside it, imports directly.
func packageImports() map[string][]string {
	GinkgoHelper()
	const module = "bosh-kubernetes-cpi/"
	list := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`,
		"./cmd/...", "./cpi/...", "./kube/...", "./agentsettings/...", "./stemcell/...")
	list.Dir = root
	out, err := list.Output()
	Expect(err).NotTo(HaveOccurred())
	found := map[string][]string{}
	for _, line := range lines(string(out)) {
		words := strings.Fields(line)
		for _, imported := range words[1:] {
			if ours, ok := strings.CutPrefix(imported, module); ok {
				from := strings.TrimPrefix(words[0], module)
				found[from] = append(found[from], ours)
			}
		}
	}
	return found
}

// transitiveReduction leaves out each arrow whose end is reached by a longer way.
func transitiveReduction(arrows map[string][]string) []string {
	var reaches func(from, to string) bool
	reaches = func(from, to string) bool {
		return from == to || slices.ContainsFunc(arrows[from], func(next string) bool { return reaches(next, to) })
	}
	var found []string
	for from, ends := range arrows {
		for _, to := range ends {
			if !slices.ContainsFunc(ends, func(other string) bool { return other != to && reaches(other, to) }) {
				found = append(found, from+" -> "+to)
			}
		}
	}
	return found
}
