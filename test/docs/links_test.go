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

var _ = Describe("Links", func() {
	It("lead to files, folders and headings that are there", func() {
		all := map[string]page{}
		for _, p := range pages() {
			all[p.path] = p
		}
		var broken []string
		checked := 0
		for _, p := range all {
			for _, target := range p.links() {
				if schemePattern.MatchString(target) {
					continue
				}
				checked++
				file, anchor, named := strings.Cut(target, "#")
				to := p.path
				if file != "" {
					to = path.Join(path.Dir(p.path), file)
				}
				if !pathExists(to) || named && !all[to].anchors()[anchor] {
					broken = append(broken, p.path+": "+target)
				}
			}
		}
		Expect(checked).To(BeNumerically(">", 50))
		Expect(broken).To(BeEmpty())
	})

	DescribeTable("to headings are as GitHub makes them",
		func(title, anchor string) { Expect(anchorOf(title)).To(Equal(anchor)) },
		Entry("of words", "What a restart keeps", "what-a-restart-keeps"),
		Entry("of code", "`disk_strategy: recreate`", "disk_strategy-recreate"),
		Entry("of more than words", "VMs (VM types, AZs)", "vms-vm-types-azs"),
		Entry("of a link", "[Unreleased](x.md)", "unreleased"),
	)
})

var _ = Describe("The lists of pages", func() {
	lists := func(list string) []string {
		var found []string
		for _, target := range parsePage(list).links() {
			found = append(found, path.Join(path.Dir(list), target))
		}
		return found
	}

	DescribeTable("name all of them",
		func(list string, of ...string) {
			for _, pattern := range of {
				files, err := filepath.Glob(filepath.Join(root, pattern))
				Expect(err).NotTo(HaveOccurred())
				Expect(files).NotTo(BeEmpty())
				for _, file := range files {
					if relativePath(file) != list {
						Expect(lists(list)).To(ContainElement(relativePath(file)))
					}
				}
			}
		},
		Entry("for operators", "README.md", "docs/*.md", "docs/reference/*.md", "*.md", "src/*.md"),
		Entry("for developers", "docs/development/README.md", "docs/development/*.md"),
		Entry("of decisions", "docs/development/decisions/README.md", "docs/development/decisions/*.md"),
	)
})

var _ = Describe("The records of decisions", func() {
	It("are numbered one after the other, and have the same headings", func() {
		files, err := filepath.Glob(filepath.Join(root, "docs/development/decisions/0*.md"))
		Expect(err).NotTo(HaveOccurred())
		Expect(files).NotTo(BeEmpty())
		for i, file := range files {
			record := parsePage(relativePath(file))
			Expect(filepath.Base(file)).To(HavePrefix("%04d-", i+1))
			Expect(record.headings).To(HaveLen(5), record.path)
			Expect(record.headings[0]).To(HavePrefix("%d. ", i+1), record.path)
			Expect(record.headings[1:]).To(Equal([]string{"Context", "Decision", "Tried and measured", "Consequences"}), record.path)
		}
	})
})
