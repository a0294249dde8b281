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
	codeHeading = regexp.MustCompile(`(?m)^### (.*)\n+(.*)$`) // with the first line of its text
	typeRow     = regexp.MustCompile("(?m)^\\| `([A-Z]\\w+)` \\|")
	kindPattern = regexp.MustCompile(`"` + errorKindPrefix + `(\w+)"`)
	codeVar     = regexp.MustCompile(`(?m)^\t(\w+) += newCode\(`)

	// failMessage matches a call of fail in a program, with its message, which may continue on the next line. It does not match a
	// message that is only the value of a variable or command: release.sh and release-directory.sh print only the processes that use
	// a disk, and the CPI adds the code.
	failMessage = regexp.MustCompile(`\bfail "[^$\n]*[a-z](?:.*\\\n)*.*`)
	// codeInProgram matches the code at the end of a message.
	codeInProgram = regexp.MustCompile(`\[([a-z]+(?:-[a-z]+)+)\]"`)
)

// documentedCodes returns the first line about each code in the error reference, and all headings in the order of the page.
func documentedCodes() (firstLines map[string]string, headings []string) {
	firstLines = map[string]string{}
	for _, match := range codeHeading.FindAllStringSubmatch(parsePage(errorsPage).prose, -1) {
		firstLines[match[1]] = match[2]
		headings = append(headings, match[1])
	}
	return firstLines, headings
}

// vmPrograms are the programs of VM Pods.
func vmPrograms() []string {
	return []string{node.VMStart()[2], node.VMStop()[2], node.AgentRunning()[2], node.AgentConnected()[2], node.Probe()[2]}
}

// failures returns the calls of fail in the programs.
func failures(programs []string) (messages []string) {
	for _, program := range programs {
		messages = append(messages, failMessage.FindAllString(program, -1)...)
	}
	return messages
}

// codesIn returns the codes at the end of messages in the texts, sorted.
func codesIn(texts []string) []string {
	var codes []string
	for _, text := range texts {
		for _, match := range codeInProgram.FindAllStringSubmatch(text, -1) {
			codes = append(codes, match[1])
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

func helperPrograms() (programs []string) {
	for _, program := range node.HelperPrograms() {
		programs = append(programs, program)
	}
	return programs
}

// documentedType returns the name of the type in the error reference.
func documentedType(kind call.ErrorKind) string {
	return strings.TrimPrefix(string(kind), errorKindPrefix)
}

// identifiers returns all identifiers in the Go files of the folder, except test files and the file excluded.
func identifiers(folder, excluded string) map[string]bool {
	GinkgoHelper()
	found := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || relativePath(path) == excluded {
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
		existing := codesIn(slices.Concat(helperPrograms(), vmPrograms()))
		Expect(len(existing)).To(BeNumerically(">", 15))
		for _, code := range call.Codes {
			existing = append(existing, code.Name)
		}
		slices.Sort(existing)
		_, headings := documentedCodes()
		Expect(headings).To(ConsistOf(slices.Compact(existing)))
	})

	It("documents the type of each code", func() {
		firstLines, _ := documentedCodes()
		known := map[string]bool{}
		for _, code := range call.Codes {
			known[code.Name] = true
			Expect(firstLines[code.Name]).To(Equal("Type: "+documentedType(code.Kind)), code.Name)
		}
		for _, code := range codesIn(failures(helperPrograms())) {
			if !known[code] { // the CPI returns it with one of these types
				known[code] = true
				for _, failure := range []call.Code{call.DiskAttachFailed, call.DiskCopyFailed, call.VMRebootFailed} {
					Expect(firstLines[code]).To(Equal("Type: "+documentedType(failure.Kind)), code)
				}
			}
		}
		for _, code := range codesIn(slices.Concat(helperPrograms(), vmPrograms())) {
			if !known[code] { // it is only a part of messages with other codes, or only in the status of a Pod
				Expect(firstLines[code]).To(HavePrefix("Reported in: "), code)
			}
		}
	})

	It("has a table row for each type, and no other rows", func() {
		var documented, existing []string
		for _, row := range typeRow.FindAllStringSubmatch(parsePage(errorsPage).prose, -1) {
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
	It("are at the end of each message with which a program on a node fails", func() {
		messages := failures(slices.Concat(helperPrograms(), vmPrograms()))
		Expect(len(messages)).To(BeNumerically(">", 20))
		for _, message := range messages {
			Expect(codeInProgram.FindString(message)).NotTo(BeEmpty(), message)
		}
	})

	It("are all used by the CPI", func() {
		used := identifiers("cpi", errorCodeSource)
		variables := codeVar.FindAllStringSubmatch(readFile(errorCodeSource), -1)
		Expect(variables).To(HaveLen(len(call.Codes)))
		for _, variable := range variables {
			Expect(used).To(HaveKey(variable[1]))
		}
	})
})
