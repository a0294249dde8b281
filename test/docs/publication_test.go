package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// unpublishedPattern matches what only readers without a release have to do, and placeholders.
var unpublishedPattern = regexp.MustCompile(`OWNER|[Nn]o version is published|There is no release|checkout of this|make (build|release)|` +
	`scripts/build-(node-image|kubectl-bosh|cni-shim)|before the first release`)

var _ = Describe("The pages after the first release", Ordered, func() {
	BeforeAll(func() {
		releases := parsePage("docs/development/releases.md")
		copyRepository()
		var commands []string
		for _, b := range releases.blocks {
			if strings.HasPrefix(strings.TrimSpace(b.content), "perl ") {
				commands = append(commands, b.content)
			}
		}
		Expect(commands).To(HaveLen(2))
		for _, script := range commands {
			command := exec.Command("bash", "-euc", script)
			command.Dir = root
			output, err := command.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(output))
		}
	})

	It("require no build, and have no placeholder", func() {
		checked := 0
		for _, p := range pages() {
			if strings.HasPrefix(p.path, "docs/development/") || p.path == "CONTRIBUTING.md" || p.path == "CHANGELOG.md" {
				continue
			}
			checked++
			Expect(unpublishedPattern.FindAllString(readFile(p.path), -1)).To(BeEmpty(), p.path)
		}
		Expect(checked).To(BeNumerically(">", 20))
	})

	It("have links that lead to existing files, directories and headings", func() { Expect(brokenLinks()).To(BeEmpty()) })
})

// copyRepository sets root to a copy of the repository, until the container ends.
func copyRepository() {
	GinkgoHelper()
	target, original := GinkgoT().TempDir(), root
	command := exec.Command("bash", "-euo", "pipefail", "-c", `git ls-files -z --cached --others --exclude-standard |
		while IFS= read -r -d '' file; do [[ ! -e $file ]] || printf '%s\0' "$file"; done | tar -c --null -T - | tar -x -C "$0"`, target)
	command.Dir = original
	output, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	Expect(os.Stat(filepath.Join(target, "README.md"))).NotTo(BeNil())
	root = target
	DeferCleanup(func() { root = original })
}
