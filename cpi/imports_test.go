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

// allowedImports maps the packages of the product to the other packages that each may import, directly or indirectly. The layers
// are cmd → preflight, collect → cpi → vm → disk, network, stemcell → call → kube, agentsettings, stemcell.
var allowedImports = map[string][]string{
	"agentsettings":  {},
	"stemcell":       {},
	"kube/extension": {},
	"cpi/node":       {},
	"cpi/manifest":   {"kube/extension", "cpi/node"},
	"kube":           {"kube/extension"},
	"cpi/call":       {"kube", "kube/extension", "cpi/manifest", "cpi/node"},
	"cpi/network":    {"cpi/call", "agentsettings", "kube", "kube/extension", "cpi/manifest", "cpi/node"},
	"cpi/disk":       {"cpi/call", "kube", "kube/extension", "cpi/manifest", "cpi/node"},
	"cpi/stemcell":   {"cpi/call", "stemcell", "kube", "kube/extension", "cpi/manifest", "cpi/node"},
	"cpi/vm": {"cpi/call", "cpi/disk", "cpi/network", "cpi/stemcell", "agentsettings", "stemcell",
		"kube", "kube/extension", "cpi/manifest", "cpi/node"},
	"cpi/preflight": {"cpi", "cpi/call", "cpi/disk", "cpi/network", "cpi/stemcell", "cpi/vm", "agentsettings", "stemcell",
		"kube", "kube/extension", "cpi/manifest", "cpi/node"},
	"cpi/collect": {"cpi", "cpi/call", "cpi/disk", "cpi/network", "cpi/stemcell", "cpi/vm", "agentsettings", "stemcell",
		"kube", "kube/extension", "cpi/manifest", "cpi/node"},
	"cpi": {"cpi/call", "cpi/disk", "cpi/network", "cpi/stemcell", "cpi/vm", "agentsettings", "stemcell",
		"kube", "kube/extension", "cpi/manifest", "cpi/node"},
}

// listPackages returns the packages that match the patterns, with their imports: directly, or all of them.
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

var _ = Describe("Imports", Ordered, func() {
	var dependencies map[string][]string // directly or indirectly
	BeforeAll(func() {
		dependencies = listPackages("Deps", "cpi/...", "kube/...", "agentsettings/...", "stemcell/...", "cmd/cpi")
	})

	for pkg, allowed := range allowedImports {
		It("of "+pkg+" are allowed", func() {
			for _, imported := range dependencies[pkg] {
				if other, internal := strings.CutPrefix(imported, module); internal && other != pkg {
					Expect(allowed).To(ContainElement(other), "%s imports %s", pkg, other)
				}
			}
		})
	}

	It("are specified for every package", func() {
		for pkg := range dependencies {
			if pkg != "cmd/cpi" {
				Expect(allowedImports).To(HaveKey(pkg))
			}
		}
	})

	It("of the program exclude large packages that no call uses", func() {
		linked := dependencies["cmd/cpi"]
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
		for pkg, imported := range listPackages("Imports", "cpi/manifest", "cpi/node", "kube/extension") {
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
