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

// Diagrams are in Mermaid, which GitHub renders: https://mermaid.js.org/intro/.
var (
	diagramKinds = []string{"flowchart", "sequenceDiagram", "stateDiagram-v2", "classDiagram", "erDiagram", "timeline", "gantt"}
	// Keywords of flowcharts, which are not valid as the names of nodes.
	reservedWords = []string{"call", "class", "classDef", "click", "default", "end", "graph", "href", "linkStyle", "style", "subgraph"}

	edgePattern        = regexp.MustCompile(`^\s*(\w+)(?:\["([^"]*)"\])? --> (\w+)(?:\["([^"]*)"\])?$`)
	participantPattern = regexp.MustCompile(`^\s*participant (\w+)`)
	messagePattern     = regexp.MustCompile(`^\s*(\w+)-?->>(\w+): \S`)
)

// diagrams returns the Mermaid blocks of all pages, by their position.
func diagrams() map[string]string {
	GinkgoHelper()
	all := map[string]string{}
	for _, p := range pages() {
		for _, b := range p.blocks {
			if b.language == "mermaid" {
				all[p.position(b)] = b.text
			}
		}
	}
	Expect(all).NotTo(BeEmpty())
	return all
}

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }

var _ = Describe("Code blocks", func() {
	It("are closed", func() {
		for _, p := range pages() {
			Expect(p.open).To(BeFalse(), "the last block of %s is not closed", p.path)
		}
	})
})

var _ = Describe("Diagrams", func() {
	It("are of a known kind and not empty", func() {
		for at, text := range diagrams() {
			kind, _, _ := strings.Cut(lines(text)[0], " ")
			Expect(diagramKinds).To(ContainElement(kind), at)
			Expect(len(lines(text))).To(BeNumerically(">", 2), at)
		}
	})

	It("do not contain a semicolon, which Mermaid parses as the end of a statement", func() {
		for at, text := range diagrams() {
			Expect(text).NotTo(ContainSubstring(";"), at)
		}
	})

	It("of sequences use only declared participants, and close their blocks", func() {
		for at, text := range diagrams() {
			if !strings.HasPrefix(text, "sequenceDiagram") {
				continue
			}
			var participants []string
			open := 0
			for _, line := range lines(text)[1:] {
				keyword, _, _ := strings.Cut(strings.TrimSpace(line), " ")
				if declared := participantPattern.FindStringSubmatch(line); declared != nil {
					participants = append(participants, declared[1])
					continue
				}
				switch keyword {
				case "alt", "loop", "opt", "par":
					open++
				case "end":
					open--
				case "else", "and", "Note":
				default:
					message := messagePattern.FindStringSubmatch(line)
					Expect(message).NotTo(BeNil(), "%s: %q is not a message", at, line)
					Expect(participants).To(And(ContainElement(message[1]), ContainElement(message[2])), "%s: %q", at, line)
				}
			}
			Expect(open).To(BeZero(), at)
		}
	})

	It("of flowcharts do not use keywords as the names of nodes", func() {
		for at, text := range diagrams() {
			if !strings.HasPrefix(text, "flowchart") {
				continue
			}
			for _, line := range lines(text)[1:] {
				edge := edgePattern.FindStringSubmatch(line)
				Expect(edge).NotTo(BeNil(), "%s: %q is not an edge", at, line)
				Expect(reservedWords).NotTo(ContainElement(BeElementOf(edge[1], edge[3])), "%s: %q", at, line)
			}
		}
	})
})

var _ = Describe("The package diagram", func() {
	It("shows the imports between packages, except those that other imports imply", func() {
		Expect(diagramEdges()).To(ConsistOf(transitiveReduction(packageImports())))
	})
})

// diagramEdges returns the edges of the first diagram of the architecture page, as "from -> to".
func diagramEdges() []string {
	GinkgoHelper()
	var edges []string
	labels := map[string]string{}
	first := slices.IndexFunc(parsePage(architecture).blocks, func(b block) bool { return b.language == "mermaid" })
	Expect(first).NotTo(Equal(-1))
	for _, line := range lines(parsePage(architecture).blocks[first].text)[1:] {
		edge := edgePattern.FindStringSubmatch(line)
		Expect(edge).NotTo(BeNil(), line)
		for i := 1; i < len(edge); i += 2 {
			if edge[i+1] != "" {
				labels[edge[i]] = edge[i+1]
			}
			Expect(labels).To(HaveKey(edge[i]), "%q uses a node without a label", line)
		}
		edges = append(edges, labels[edge[1]]+" -> "+labels[edge[3]])
	}
	return edges
}

// packageImports returns the direct imports of each package of the module, except tests and scripts.
func packageImports() map[string][]string {
	GinkgoHelper()
	const module = "bosh-kubernetes-cpi/"
	list := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`,
		"./cmd/...", "./cpi/...", "./kube/...", "./agentsettings/...", "./stemcell/...")
	list.Dir = root
	out, err := list.Output()
	Expect(err).NotTo(HaveOccurred())
	imports := map[string][]string{}
	for _, line := range lines(string(out)) {
		words := strings.Fields(line)
		for _, imported := range words[1:] {
			if to, ok := strings.CutPrefix(imported, module); ok {
				from := strings.TrimPrefix(words[0], module)
				imports[from] = append(imports[from], to)
			}
		}
	}
	return imports
}

// transitiveReduction returns the edges without those between nodes that a longer path connects.
func transitiveReduction(edges map[string][]string) []string {
	var reaches func(from, to string) bool
	reaches = func(from, to string) bool {
		return from == to || slices.ContainsFunc(edges[from], func(next string) bool { return reaches(next, to) })
	}
	var reduced []string
	for from, targets := range edges {
		for _, to := range targets {
			if !slices.ContainsFunc(targets, func(other string) bool { return other != to && reaches(other, to) }) {
				reduced = append(reduced, from+" -> "+to)
			}
		}
	}
	return reduced
}
