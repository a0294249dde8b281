package manifest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest"
)

// directorKeys are the names among the constants that are not the CPI's own: the director's metadata has them.
var directorKeys = []string{"AnnotationInstance", "AnnotationInstanceID"}

// keyConstants are the constants of the package whose names say that they are labels, annotations or roles: the file
// that each stands in, and its value.
func keyConstants() map[string]struct{ file, value string } {
	GinkgoHelper()
	found := map[string]struct{ file, value string }{}
	files, err := filepath.Glob("*.go")
	Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		Expect(err).NotTo(HaveOccurred())
		ast.Inspect(parsed, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || len(spec.Values) != len(spec.Names) {
				return true
			}
			for i, name := range spec.Names {
				isKey := strings.HasPrefix(name.Name, "Label") || strings.HasPrefix(name.Name, "Annotation") || strings.HasPrefix(name.Name, "Role")
				if isKey {
					found[name.Name] = struct{ file, value string }{file, valueOf(spec.Values[i])}
				}
			}
			return true
		})
	}
	return found
}

// valueOf is the text of "x" and of Prefix + "x".
func valueOf(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		Expect(err).NotTo(HaveOccurred())
		return text
	case *ast.BinaryExpr:
		return manifest.Prefix + valueOf(e.Y)
	}
	return ""
}

var _ = Describe("The keys of labels and annotations", func() {
	It("lie in names.go, those of roles too", func() {
		Expect(len(keyConstants())).To(BeNumerically(">", 30))
		for name, key := range keyConstants() {
			Expect(key.file).To(Equal("names.go"), name)
			Expect(key.value).NotTo(BeEmpty(), name)
		}
	})

	It("are reserved, each of them, but for the director's", func() {
		for name, key := range keyConstants() {
			if !strings.HasPrefix(name, "Role") {
				Expect(manifest.IsReservedKey(key.value)).To(Equal(!slices.Contains(directorKeys, name)), name)
			}
		}
	})

	It("are reserved for Services of whatever name", func() {
		Expect(manifest.IsReservedKey(manifest.LabelService("web"))).To(BeTrue())
	})
})
