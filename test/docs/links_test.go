package docs

import (
	"path"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var schemePattern = regexp.MustCompile(`^[a-z][a-z+.-]*:`)

// brokenLinks returns the links that lead nowhere.
func brokenLinks() []string {
	GinkgoHelper()
	pagesByPath := map[string]page{}
	for _, p := range pages() {
		pagesByPath[p.path] = p
	}
	var broken []string
	checked := 0
	for _, p := range pagesByPath {
		for _, target := range p.links() {
			if schemePattern.MatchString(target) {
				continue
			}
			checked++
			file, anchor, hasAnchor := strings.Cut(target, "#")
			linked := p.path
			if file != "" {
				linked = path.Join(path.Dir(p.path), file)
			}
			if !pathExists(linked) || hasAnchor && !pagesByPath[linked].anchors()[anchor] {
				broken = append(broken, p.path+": "+target)
			}
		}
	}
	Expect(checked).To(BeNumerically(">", 50))
	return broken
}

var _ = Describe("Links", func() {
	It("lead to existing files, directories and headings", func() { Expect(brokenLinks()).To(BeEmpty()) })

	DescribeTable("to headings have the anchors that GitHub generates",
		func(title, anchor string) { Expect(anchorOf(title)).To(Equal(anchor)) },
		Entry("for words", "What a restart keeps", "what-a-restart-keeps"),
		Entry("for code", "`disk_strategy: recreate`", "disk_strategy-recreate"),
		Entry("for punctuation", "VMs (VM types, AZs)", "vms-vm-types-azs"),
		Entry("for a link", "[Unreleased](x.md)", "unreleased"),
	)
})

var _ = Describe("Lists of pages", func() {
	linksOf := func(list string) []string {
		var files []string
		for _, target := range parsePage(list).links() {
			files = append(files, path.Join(path.Dir(list), target))
		}
		return files
	}

	DescribeTable("link to all pages",
		func(list string, patterns ...string) {
			for _, pattern := range patterns {
				files, err := filepath.Glob(filepath.Join(root, pattern))
				Expect(err).NotTo(HaveOccurred())
				Expect(files).NotTo(BeEmpty())
				for _, file := range files {
					if relativePath(file) != list {
						Expect(linksOf(list)).To(ContainElement(relativePath(file)))
					}
				}
			}
		},
		Entry("of the repository", "README.md", "docs/README.md", "docs/getting-started.md", "*.md"),
		Entry("for operators", "docs/README.md", "docs/getting-started.md", "docs/guides/*.md", "docs/reference/*.md", "docs/explanation/*.md"),
		Entry("for developers", "docs/development/README.md", "docs/development/*.md"),
		Entry("of decisions", "docs/development/decisions/README.md", "docs/development/decisions/*.md"),
	)
})

var _ = Describe("Decision records", func() {
	It("have the number of their file, and the same headings", func() {
		files, err := filepath.Glob(filepath.Join(root, "docs/development/decisions/0*.md"))
		Expect(err).NotTo(HaveOccurred())
		Expect(files).NotTo(BeEmpty())
		for _, file := range files {
			record := parsePage(relativePath(file))
			number, _, _ := strings.Cut(filepath.Base(file), "-")
			Expect(record.headings).To(HaveLen(5), record.path)
			Expect(record.headings[0]).To(HavePrefix(strings.TrimLeft(number, "0")+". "), record.path)
			Expect(record.headings[1:]).To(Equal([]string{"Context", "Decision", "Alternatives", "Consequences"}), record.path)
		}
	})
})
