package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// speaking are the folders whose messages reach BOSH; below them silent ones do not: the check has a page of its own.
var (
	messageDirs  = []string{"cpi", "kube", "stemcell", "agentsettings"}
	excludedDirs = []string{"cpi/preflight"}
	// internalErrorDirs have package variables that name errors for other code, and are not shown.
	internalErrorDirs = []string{"kube", "stemcell"}
)

// errorConstructors are the functions that make an error, with the place of its message among their arguments; -1 is the last.
var errorConstructors = map[string]int{
	"Errorf": 0, "Invalid": 0, "invalid": 0, "errorResponse": 0, "errors.New": 0, "wrap": 1, "WithMessage": 1, "ExplainTimeout": 2, "RunHelperPod": -1, "WaitForHelperPod": -1,
}

// messageFunctions are functions that return a message, or a part of one with words of its own.
var messageFunctions = []string{"credentialPluginMessage", "rejectedCredentialsMessage"}

// placeholder stands in a message for what is different each time.
const placeholder = "…"

var (
	formatVerb           = regexp.MustCompile(`%[-+#0]*(\[\d+\])?[a-zA-Z%]`)
	repeatedPlaceholders = regexp.MustCompile(placeholder + `(` + placeholder + `)+`)
	wordPattern          = regexp.MustCompile(`[A-Za-z]{2}`)
)

// messages are those that the code can answer with, each with its types on the wire as the code's constants name them,
// or none where the code around decides.
func messages() map[string][]string {
	GinkgoHelper()
	found := map[string][]string{}
	for _, folder := range messageDirs {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && slices.Contains(excludedDirs, relativePath(path)):
				return filepath.SkipDir
			case filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go"):
				collectGoMessages(found, path)
			case filepath.Ext(path) == ".sh":
				collectScriptMessages(found, path)
			}
			return nil
		})
		Expect(err).NotTo(HaveOccurred())
	}
	return found
}

func collectGoMessages(found map[string][]string, path string) {
	GinkgoHelper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	Expect(err).NotTo(HaveOccurred())
	for _, declared := range file.Decls {
		switch declared := declared.(type) {
		case *ast.GenDecl:
			if declared.Tok == token.VAR && slices.Contains(internalErrorDirs, relativePath(filepath.Dir(path))) {
				continue
			}
		case *ast.FuncDecl:
			if slices.Contains(messageFunctions, declared.Name.Name) {
				collectReturnedMessages(found, declared)
			}
		}
		ast.Inspect(declared, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok {
				message, kind := errorMessage(call)
				addMessage(found, message, kind)
			}
			return true
		})
	}
}

// collectReturnedMessages finds what the function returns.
func collectReturnedMessages(found map[string][]string, function *ast.FuncDecl) {
	ast.Inspect(function, func(node ast.Node) bool {
		if returned, ok := node.(*ast.ReturnStmt); ok {
			for _, result := range returned.Results {
				addMessage(found, normalize(constantText(result)), "")
			}
		}
		return true
	})
}

// addMessage notes a message that has words of its own, and its type if that is known.
func addMessage(found map[string][]string, message, kind string) {
	if !hasOwnWords(message) {
		return
	}
	known := found[message]
	if kind != "" && !slices.Contains(known, kind) {
		known = append(known, kind)
	}
	found[message] = known
}

// collectScriptMessages finds what a script on a node gives as its reason to fail, which calls pass on.
func collectScriptMessages(found map[string][]string, path string) {
	GinkgoHelper()
	for line := range strings.SplitSeq(readFile(relativePath(path)), "\n") {
		_, failing, fails := strings.Cut(line, `fail "`)
		if fails && !strings.HasPrefix(strings.TrimSpace(line), "#") {
			addMessage(found, normalize(expandShell(failing)), "")
		}
	}
}

var (
	commandSubstitution = regexp.MustCompile(`\$\([^(].*`) // the rest of the line is its own
	shellVariable       = regexp.MustCompile(`\$(\(\(.*?\)\)|\{.*?\}|\w+)`)
)

// expandShell is the text of a shell's string, which begins a line, with gaps for what the shell puts in.
func expandShell(line string) string {
	line = shellVariable.ReplaceAllString(line, placeholder)
	if shorter := commandSubstitution.ReplaceAllString(line, placeholder); shorter != line {
		return shorter
	}
	text, _, complete := strings.Cut(line, `"`)
	if !complete { // it goes on in the next line
		return text + placeholder
	}
	return text
}

// errorMessage is the message of the error that a call makes, and its type; "" when it makes none, or says none.
func errorMessage(call *ast.CallExpr) (message, kind string) {
	receiver, name := "", ""
	switch function := call.Fun.(type) {
	case *ast.Ident:
		name = function.Name
	case *ast.SelectorExpr:
		receiver, name = lastName(function.X), function.Sel.Name
	}
	at, known := errorConstructors[name]
	if !known {
		at, known = errorConstructors[receiver+"."+name]
	}
	if at < 0 {
		at = len(call.Args) - 1
	}
	if !known || at >= len(call.Args) {
		return "", ""
	}
	switch {
	case strings.EqualFold(name, "Invalid"):
		kind = "CPIError"
	case name == "Errorf" && receiver != "fmt" && ast.IsExported(receiver):
		kind = receiver
	}
	return normalize(constantText(call.Args[at])), kind
}

// lastName is the last name of an expression like call.CloudError.
func lastName(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.Ident:
		return of.Name
	case *ast.SelectorExpr:
		return of.Sel.Name
	}
	return ""
}

// constantText is what is constant in an expression, with gaps between.
func constantText(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.BasicLit:
		if value, err := strconv.Unquote(of.Value); err == nil && of.Kind == token.STRING {
			return formatVerb.ReplaceAllStringFunc(value, func(found string) string {
				if found == "%%" {
					return "%"
				}
				return placeholder
			})
		}
	case *ast.BinaryExpr:
		return constantText(of.X) + constantText(of.Y)
	case *ast.CallExpr:
		if lastName(of.Fun) == "Sprintf" {
			return constantText(of.Args[0])
		}
	}
	return placeholder
}

func normalize(message string) string {
	return repeatedPlaceholders.ReplaceAllString(strings.Join(strings.Fields(message), " "), placeholder)
}

// hasOwnWords reports whether a message has words of its own, and does not only name what another message is about.
func hasOwnWords(message string) bool {
	words := 0
	for word := range strings.FieldsSeq(message) {
		if wordPattern.MatchString(word) {
			words++
		}
	}
	return words >= 2
}
