package docs

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/call"
)

const (
	errorsPage      = "docs/reference/errors.md"
	errorCodeSource = "cpi/call/codes.go"
	errorKindSource = "cpi/call/errors.go"
	errorKindPrefix = "Bosh::Clouds::"
)

var (
	codeHeadingPattern = regexp.MustCompile(`(?m)^### (.*)\n+(.*)$`) // with the first line below the heading
	typeRowPattern     = regexp.MustCompile("(?m)^\\| `([A-Z]\\w+)` \\|")
	kindPattern        = regexp.MustCompile(`"` + errorKindPrefix + `(\w+)"`)
	codeVarPattern     = regexp.MustCompile(`(?m)^\t(\w+) += newCode\(`)
	codePattern        = regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`)
)

// documentedCodes returns the first line below the heading of each code in the error reference, and the headings in order.
func documentedCodes() (firstLines map[string]string, headings []string) {
	firstLines = map[string]string{}
	for _, match := range codeHeadingPattern.FindAllStringSubmatch(parsePage(errorsPage).prose, -1) {
		firstLines[match[1]] = match[2]
		headings = append(headings, match[1])
	}
	return firstLines, headings
}

// nodeCodes returns the codes of errors of bosh-node, with the packages that return them.
func nodeCodes() map[string][]string {
	GinkgoHelper()
	codes := map[string][]string{}
	directories, err := filepath.Glob(filepath.Join(root, "cpi/node/*"))
	Expect(err).NotTo(HaveOccurred())
	for _, directory := range append(directories, filepath.Join(root, "cmd/bosh-node")) {
		found, constants := map[string]bool{}, map[string]string{}
		for _, file := range parseDir(directory) {
			maps.Copy(constants, constantsIn(file))
			ast.Inspect(file, func(node ast.Node) bool {
				if code := errorCode(node); code != "" {
					found[code] = true
				}
				return true
			})
		}
		for code := range found {
			code = cmp.Or(constants[code], code)
			codes[code] = append(codes[code], filepath.Base(directory))
		}
	}
	return codes
}

// parseDir returns the Go files in the directory and those below it, except tests.
func parseDir(directory string) (files []*ast.File) {
	GinkgoHelper()
	err := filepath.WalkDir(directory, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		files = append(files, file)
		return err
	})
	Expect(err).NotTo(HaveOccurred())
	return files
}

// constantsIn returns the constants of the file that are strings.
func constantsIn(file *ast.File) map[string]string {
	constants := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, ok := node.(*ast.ValueSpec); ok && len(spec.Values) == len(spec.Names) {
			for i, name := range spec.Names {
				if value := text(spec.Values[i]); value != "" {
					constants[name.Name] = value
				}
			}
		}
		return true
	})
	return constants
}

// errorCode returns the code, or the name of a constant, in api.Errorf(CODE, …) and in a row {FUNCTION, CODE} of a table of commands. It
// returns "" for other nodes.
func errorCode(node ast.Node) string {
	switch node := node.(type) {
	case *ast.CallExpr:
		function, ok := node.Fun.(*ast.SelectorExpr)
		if !ok || function.Sel.Name != "Errorf" || fmt.Sprint(function.X) != "api" {
			return ""
		}
		if constant, ok := node.Args[0].(*ast.Ident); ok {
			return constant.Name
		}
		return text(node.Args[0])
	case *ast.CompositeLit:
		if node.Type == nil && len(node.Elts) == 2 && codePattern.MatchString(text(node.Elts[1])) {
			return text(node.Elts[1])
		}
	}
	return ""
}

// text returns the value of a string, or "" for other expressions.
func text(expression ast.Expr) string {
	literal, ok := expression.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	value, _ := strconv.Unquote(literal.Value)
	return value
}

// documentedType returns the name of the type in the error reference.
func documentedType(kind call.ErrorKind) string {
	return strings.TrimPrefix(string(kind), errorKindPrefix)
}

// identifiers returns the identifiers in the Go files of the directory, except test files and excludedFile.
func identifiers(dir, excludedFile string) map[string]bool {
	GinkgoHelper()
	found := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || relativePath(path) == excludedFile {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if identifier, ok := node.(*ast.Ident); ok {
				found[identifier.Name] = true
			}
			return true
		})
		return nil
	})
	Expect(err).NotTo(HaveOccurred())
	return found
}

var _ = Describe("docs/reference/errors.md", func() {
	It("has one heading for each code of the CPI and of programs on nodes, and no others", func() {
		codes := slices.Collect(maps.Keys(nodeCodes()))
		Expect(len(codes)).To(BeNumerically(">", 20))
		for _, code := range call.Codes {
			codes = append(codes, code.Name)
		}
		slices.Sort(codes)
		_, headings := documentedCodes()
		Expect(headings).To(ConsistOf(slices.Compact(codes)))
	})

	It("documents the type of each code", func() {
		firstLines, _ := documentedCodes()
		known := map[string]bool{}
		for _, code := range call.Codes {
			known[code.Name] = true
			Expect(firstLines[code.Name]).To(Equal("Type: "+documentedType(code.Kind)), code.Name)
		}
		for code, packages := range nodeCodes() {
			switch {
			case known[code]:
			case slices.Contains(packages, "boot"), slices.Contains(packages, "agent"), code == "disk-not-published":
				// It occurs only within messages with other codes, or in the status of a Pod.
				Expect(firstLines[code]).To(HavePrefix("Reported in: "), code)
			default: // the CPI returns it with one of these types
				for _, failure := range []call.Code{call.CodeDiskAttachFailed, call.CodeVMRebootFailed} {
					Expect(firstLines[code]).To(Equal("Type: "+documentedType(failure.Kind)), code)
				}
			}
		}
	})

	It("has a table row for each type, and no other rows", func() {
		var documented, existing []string
		for _, row := range typeRowPattern.FindAllStringSubmatch(parsePage(errorsPage).prose, -1) {
			documented = append(documented, row[1])
		}
		for _, kind := range kindPattern.FindAllStringSubmatch(readFile(errorKindSource), -1) {
			existing = append(existing, kind[1])
		}
		Expect(existing).NotTo(BeEmpty())
		Expect(documented).To(ConsistOf(existing))
	})
})

var _ = Describe("Error codes", func() {
	It("are all used by the CPI", func() {
		used := identifiers("cpi", errorCodeSource)
		variables := codeVarPattern.FindAllStringSubmatch(readFile(errorCodeSource), -1)
		Expect(variables).To(HaveLen(len(call.Codes)))
		for _, variable := range variables {
			Expect(used).To(HaveKey(variable[1]))
		}
	})
})
