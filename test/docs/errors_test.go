package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/node"
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

	// failPattern matches a call of fail in a program. The message may continue on the next line. The pattern does not match a message
	// that consists only of the value of a variable or command. exclusivity-check.sh has such a message: it prints the processes that use
	// a disk, and the CPI adds the code.
	failPattern = regexp.MustCompile(`\bfail "[^$\n]*[a-z](?:.*\\\n)*.*`)
	// messageCodePattern matches the code at the end of a message.
	messageCodePattern = regexp.MustCompile(`\[([a-z]+(?:-[a-z]+)+)\]"`)
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

// vmPrograms are the programs of VM Pods.
func vmPrograms() []string {
	return []string{node.VMStart()[2], node.VMStop()[2], node.AgentRunning()[2], node.AgentConnected()[2], node.Probe()[2]}
}

// failCalls returns the calls of fail in the programs.
func failCalls(programs []string) (calls []string) {
	for _, program := range programs {
		calls = append(calls, failPattern.FindAllString(program, -1)...)
	}
	return calls
}

// codesIn returns the codes of the messages in the programs or calls of fail, sorted.
func codesIn(sources []string) []string {
	var codes []string
	for _, source := range sources {
		for _, match := range messageCodePattern.FindAllStringSubmatch(source, -1) {
			codes = append(codes, match[1])
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

func helperCommandAttacks() (programs []string) {
	for _, program := range node.HelperPrograms() {
		programs = append(programs, program)
	}
	return programs
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
		codes := codesIn(slices.Concat(helperCommandAttacks(), vmPrograms()))
		Expect(len(codes)).To(BeNumerically(">", 15))
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
		for _, code := range codesIn(failCalls(helperCommandAttacks())) {
			if !known[code] { // the CPI returns it with one of these types
				known[code] = true
				for _, failure := range []call.Code{call.CodeDiskAttachFailed, call.CodeVMRebootFailed} {
					Expect(firstLines[code]).To(Equal("Type: "+documentedType(failure.Kind)), code)
				}
			}
		}
		for _, code := range codesIn(slices.Concat(helperCommandAttacks(), vmPrograms())) {
			if !known[code] { // it occurs only within messages with other codes, or in the status of a Pod
				Expect(firstLines[code]).To(HavePrefix("Reported in: "), code)
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
	It("end the message of each failure of a program on a node", func() {
		calls := failCalls(slices.Concat(helperCommandAttacks(), vmPrograms()))
		Expect(len(calls)).To(BeNumerically(">", 20))
		for _, failCall := range calls {
			Expect(messageCodePattern.FindString(failCall)).NotTo(BeEmpty(), failCall)
		}
	})

	It("are all used by the CPI", func() {
		used := identifiers("cpi", errorCodeSource)
		variables := codeVarPattern.FindAllStringSubmatch(readFile(errorCodeSource), -1)
		Expect(variables).To(HaveLen(len(call.Codes)))
		for _, variable := range variables {
			Expect(used).To(HaveKey(variable[1]))
		}
	})
})
