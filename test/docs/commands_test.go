package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

var (
	makefileTargetPattern = regexp.MustCompile(`(?m)^([a-z][\w-]*):`)
	// makePattern matches the arguments of make. Variables may precede make.
	makePattern       = regexp.MustCompile(`(?:^|&& |; )(?:[A-Z_]+=\S+ )*make((?: +[^\s&;|#]+)+)`)
	targetNamePattern = regexp.MustCompile(`^[a-z][\w-]*$`)
	// repositoryPathPattern matches a path that begins with a top-level directory of the repository.
	repositoryPathPattern = regexp.MustCompile(`(?:^|[\s(='"])(` +
		`(?:\.ci|agentsettings|cmd|config|cpi|docs|jobs|kube|packages|scripts|src|stemcell|test)/[\w./-]*\w)`)
)

var _ = Describe("Commands", func() {
	It("use only existing targets of the Makefile", func() {
		targets := map[string]bool{}
		for _, match := range makefileTargetPattern.FindAllStringSubmatch(readFile("Makefile"), -1) {
			targets[match[1]] = true
		}
		var unknown []string
		checked := 0
		for _, p := range pages() {
			for _, line := range p.commands() {
				for _, match := range makePattern.FindAllStringSubmatch(strings.TrimPrefix(line, "$ "), -1) {
					for target := range strings.FieldsSeq(match[1]) {
						if !targetNamePattern.MatchString(target) { // LABEL=disks
							continue
						}
						checked++
						if !targets[target] {
							unknown = append(unknown, p.path+": make "+target)
						}
					}
				}
			}
		}
		Expect(checked).To(BeNumerically(">", 20))
		Expect(unknown).To(BeEmpty())
	})

	It("and other code use only existing files and directories", func() {
		var notFound []string
		checked := 0
		for _, p := range pages() {
			lines := p.commands()
			for _, b := range p.blocks {
				lines = append(lines, strings.Split(b.content, "\n")...)
			}
			for _, line := range lines {
				for _, match := range repositoryPathPattern.FindAllStringSubmatch(line, -1) {
					checked++
					if path := strings.TrimSuffix(match[1], "/..."); !pathExists(path) {
						notFound = append(notFound, p.path+": "+match[1])
					}
				}
			}
		}
		Expect(checked).To(BeNumerically(">", 50))
		Expect(notFound).To(BeEmpty())
	})
})

var _ = It("The actions for workflows are valid YAML", func() { // actionlint reads only the workflows
	actions, err := filepath.Glob(filepath.Join(root, ".github/actions/*/action.yml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(actions).NotTo(BeEmpty())
	for _, path := range actions {
		content, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		var action struct{ Runs struct{ Using string } }
		Expect(yaml.Unmarshal(content, &action)).To(Succeed(), path)
		Expect(action.Runs.Using).To(Equal("composite"), path)
	}
})
