package cpi

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const module = "bosh-kubernetes-cpi/"

// listPackages returns the packages with their imports: direct ones (Imports), or all (Deps).
func listPackages(imports string, patterns ...string) map[string][]string {
	GinkgoHelper()
	arguments := []string{"list", "-f", "{{.ImportPath}} {{join ." + imports + ` " "}}`}
	for _, pattern := range patterns {
		arguments = append(arguments, module+pattern)
	}
	out, err := exec.Command("go", arguments...).Output() //nolint:gosec // the arguments are constants
	Expect(err).NotTo(HaveOccurred())
	packages := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		packages[strings.TrimPrefix(words[0], module)] = words[1:]
	}
	return packages
}

var _ = Describe("Imports", func() {
	It("of the program exclude large packages that no call uses", func() {
		linked := listPackages("Deps", "cmd/cpi")["cmd/cpi"]
		Expect(linked).NotTo(BeEmpty())
		for _, name := range []string{
			"k8s.io/client-go/testing", "k8s.io/client-go/kubernetes", "k8s.io/client-go/discovery",
			"github.com/google/gnostic-models", "text/template", "testing",
			"github.com/spf13/cobra", "github.com/things-go/go-socks5", "github.com/moby/spdystream", "github.com/gorilla/websocket",
		} {
			Expect(linked).NotTo(ContainElement(Or(Equal(name), HavePrefix(name+"/"))))
		}
	})

	It("of the manifest builders exclude clients, contexts and clocks", func() {
		for pkg, imported := range listPackages("Imports", "cpi/manifest", "cpi/node/api", "kube/extension") {
			Expect(imported).NotTo(ContainElement(HavePrefix("k8s.io/client-go")))
			for _, forbidden := range []string{"context", "time", "os", "net/http"} {
				Expect(slices.Contains(imported, forbidden)).To(BeFalse(), "%s imports %s", pkg, forbidden)
			}
		}
	})

	It("of other packages do not read labels and annotations of the CPI: they use functions of manifest", func() {
		out, err := exec.Command("git", "-C", "..", "ls-files", "cpi/*.go", "cmd/*.go").Output()
		Expect(err).NotTo(HaveOccurred())
		for path := range strings.FieldsSeq(string(out)) {
			if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "cpi/manifest/") {
				continue
			}
			content, err := os.ReadFile(filepath.Join("..", path))
			Expect(err).NotTo(HaveOccurred())
			Expect(string(content)).NotTo(MatchRegexp(`\[manifest\.(Label|Annotation)\w+\]([^ ]| [^=]| ==)`), path)
		}
	})

	It("of kube and its files do not mention BOSH", func() {
		files, err := filepath.Glob("../kube/*.go")
		Expect(err).NotTo(HaveOccurred())
		nested, err := filepath.Glob("../kube/*/*.go")
		Expect(err).NotTo(HaveOccurred())
		for _, path := range append(files, nested...) {
			content, err := os.ReadFile(path)
			Expect(err).NotTo(HaveOccurred())
			text := strings.ReplaceAll(string(content), `"`+module, "")
			Expect(strings.ToLower(text)).NotTo(ContainSubstring("bosh"), path)
		}
	})
})
