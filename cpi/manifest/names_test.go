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

	"bosh-kubernetes-cpi/cpi/manifest"
)

// directorKeys are the constants for keys that only the director's metadata sets.
var directorKeys = []string{
	"AnnotationVMGroup", "AnnotationVMIndex", "AnnotationDeployment", "AnnotationDirector",
}

// keyConstants returns the constants of the package for labels, annotations and roles, by their name prefix: the file and the
// value of each.
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

// valueOf returns the value of the expressions "x" and Prefix + "x".
func valueOf(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(e.Value)
		Expect(err).NotTo(HaveOccurred())
		return value
	case *ast.BinaryExpr:
		return manifest.Prefix + valueOf(e.Y)
	}
	return ""
}

var _ = Describe("The keys of labels and annotations", func() {
	It("are in names.go, as are the roles", func() {
		Expect(len(keyConstants())).To(BeNumerically(">", 30))
		for name, key := range keyConstants() {
			Expect(key.file).To(Equal("names.go"), name)
			Expect(key.value).NotTo(BeEmpty(), name)
		}
	})

	It("are reserved, except those of the director", func() {
		for name, key := range keyConstants() {
			if !strings.HasPrefix(name, "Role") {
				Expect(manifest.IsReservedKey(key.value)).To(Equal(!slices.Contains(directorKeys, name)), name)
			}
		}
	})

	It("are reserved for Services of any name", func() {
		Expect(manifest.IsReservedKey(manifest.ServiceLabel("web"))).To(BeTrue())
	})
})
