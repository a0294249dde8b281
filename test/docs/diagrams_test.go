package docs

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const architecturePage = "docs/development/architecture.md"

// Diagrams are written in Mermaid (https://mermaid.js.org/intro/), because GitHub renders it.
var (
	diagramTypes = []string{"flowchart", "sequenceDiagram", "stateDiagram-v2", "classDiagram", "erDiagram", "timeline", "gantt"}
	// reservedWords are the keywords of flowcharts. They are not valid names of nodes.
	reservedWords = []string{"call", "class", "classDef", "click", "default", "end", "graph", "href", "linkStyle", "style", "subgraph"}

	edgePattern        = regexp.MustCompile(`^\s*(\w+)(?:\["([^"]*)"\])? --> (\w+)(?:\["([^"]*)"\])?$`)
	participantPattern = regexp.MustCompile(`^\s*participant (\w+)`)
	messagePattern     = regexp.MustCompile(`^\s*(\w+)-?->>(\w+): \S`)
	transitionPattern  = regexp.MustCompile(`^\s*(\[\*\]|\w+) --> (\[\*\]|\w+)(?:: .+)?$`)

	// attachmentStatePattern matches the declaration of a state of an attachment Pod.
	attachmentStatePattern = regexp.MustCompile(`AttachmentState = "(\w+)"`)
)

// diagrams returns the Mermaid blocks of all pages, by position.
func diagrams() map[string]string {
	GinkgoHelper()
	sources := map[string]string{}
	for _, p := range pages() {
		for _, b := range p.blocks {
			if b.language == "mermaid" {
				sources[p.position(b)] = b.content
			}
		}
	}
	Expect(sources).NotTo(BeEmpty())
	return sources
}

func lines(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }

var _ = Describe("Code blocks", func() {
	It("are closed", func() {
		for _, p := range pages() {
			Expect(p.open).To(BeFalse(), "the last block of %s is not closed", p.path)
		}
	})
})

var _ = Describe("Diagrams", func() {
	It("have a known type and are not empty", func() {
		for position, source := range diagrams() {
			diagramType, _, _ := strings.Cut(lines(source)[0], " ")
			Expect(diagramTypes).To(ContainElement(diagramType), position)
			Expect(len(lines(source))).To(BeNumerically(">", 2), position)
		}
	})

	It("do not contain semicolons, because they end statements in Mermaid", func() {
		for position, source := range diagrams() {
			Expect(source).NotTo(ContainSubstring(";"), position)
		}
	})

	It("of type sequenceDiagram use only declared participants, and close their blocks", func() {
		for position, source := range diagrams() {
			if !strings.HasPrefix(source, "sequenceDiagram") {
				continue
			}
			var participants []string
			open := 0
			for _, line := range lines(source)[1:] {
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
					Expect(message).NotTo(BeNil(), "%s: %q is not a message", position, line)
					Expect(participants).To(And(ContainElement(message[1]), ContainElement(message[2])), "%s: %q", position, line)
				}
			}
			Expect(open).To(BeZero(), position)
		}
	})

	It("of type flowchart do not use keywords as names of nodes", func() {
		for position, source := range diagrams() {
			if !strings.HasPrefix(source, "flowchart") {
				continue
			}
			for _, line := range lines(source)[1:] {
				edge := edgePattern.FindStringSubmatch(line)
				Expect(edge).NotTo(BeNil(), "%s: %q is not an edge", position, line)
				Expect(reservedWords).NotTo(ContainElement(BeElementOf(edge[1], edge[3])), "%s: %q", position, line)
			}
		}
	})
})

var _ = Describe("The package diagram", func() {
	It("shows the imports between packages, except those implied by other imports", func() {
		Expect(diagramEdges()).To(ConsistOf(transitiveReduction(packageImports())))
	})
})

var _ = Describe("The diagram of an attachment Pod", func() {
	It("has the states that the code distinguishes", func() {
		var drawn []string
		for _, source := range diagrams() {
			if !strings.Contains(source, "--> Absent\n") {
				continue
			}
			for _, line := range lines(source)[1:] {
				transition := transitionPattern.FindStringSubmatch(line)
				Expect(transition).NotTo(BeNil(), "%q is not a transition", line)
				drawn = append(drawn, transition[1:]...)
			}
		}
		states := []string{"[*]"}
		for _, constant := range attachmentStatePattern.FindAllStringSubmatch(readFile("cpi/disk/attachment_state.go"), -1) {
			states = append(states, constant[1])
		}
		slices.Sort(drawn)
		Expect(slices.Compact(drawn)).To(ConsistOf(states))
	})
})

// diagramEdges returns the edges of the first diagram of the architecture page, as "from -> to".
func diagramEdges() []string {
	GinkgoHelper()
	var edges []string
	labels := map[string]string{}
	first := slices.IndexFunc(parsePage(architecturePage).blocks, func(b block) bool { return b.language == "mermaid" })
	Expect(first).NotTo(Equal(-1))
	for _, line := range lines(parsePage(architecturePage).blocks[first].content)[1:] {
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

// packageImports returns the direct imports of each package of the module, within the module. It excludes tests and scripts.
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
		fields := strings.Fields(line)
		importer := strings.TrimPrefix(fields[0], module)
		if strings.HasSuffix(importer, "test") {
			continue // only tests import it
		}
		for _, path := range fields[1:] {
			if imported, ok := strings.CutPrefix(path, module); ok {
				imports[importer] = append(imports[importer], imported)
			}
		}
	}
	return imports
}

// transitiveReduction returns the edges, as "from -> to", except the edges between nodes that are also connected by a longer path.
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
