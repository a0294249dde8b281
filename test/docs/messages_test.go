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
	speaking = []string{"cpi", "kube", "stemcell", "agentsettings"}
	silent   = []string{"cpi/preflight"}
	// naming have package variables that name errors for other code, and are not shown.
	naming = []string{"kube", "stemcell"}
)

// makers are the functions that make an error, with the place of its message among their arguments; -1 is the last.
var makers = map[string]int{
	"Errorf": 0, "Invalid": 0, "invalid": 0, "failure": 0, "errors.New": 0, "say": 1, "Explained": 1, "ExplainTimeout": 2, "RunErrand": -1, "AwaitErrand": -1,
}

// tellers are functions that return a message, or a part of one with words of its own.
var tellers = []string{"ofProgram", "refusedCredentials"}

// gap stands in a message for what is different each time.
const gap = "…"

var (
	verb    = regexp.MustCompile(`%[-+#0]*(\[\d+\])?[a-zA-Z%]`)
	gaps    = regexp.MustCompile(gap + `(` + gap + `)+`)
	ownWord = regexp.MustCompile(`[A-Za-z]{2}`)
)

// messages are those that the code can answer with, each with its types on the wire as the code's constants name them,
// or none where the code around decides.
func messages() map[string][]string {
	GinkgoHelper()
	found := map[string][]string{}
	for _, folder := range speaking {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && slices.Contains(silent, below(path)):
				return filepath.SkipDir
			case filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go"):
				collect(found, path)
			case filepath.Ext(path) == ".sh":
				collectScript(found, path)
			}
			return nil
		})
		Expect(err).NotTo(HaveOccurred())
	}
	return found
}

func collect(found map[string][]string, path string) {
	GinkgoHelper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	Expect(err).NotTo(HaveOccurred())
	for _, declared := range file.Decls {
		switch declared := declared.(type) {
		case *ast.GenDecl:
			if declared.Tok == token.VAR && slices.Contains(naming, below(filepath.Dir(path))) {
				continue
			}
		case *ast.FuncDecl:
			if slices.Contains(tellers, declared.Name.Name) {
				collectReturned(found, declared)
			}
		}
		ast.Inspect(declared, func(node ast.Node) bool {
			if made, ok := node.(*ast.CallExpr); ok {
				said, kind := told(made)
				add(found, said, kind)
			}
			return true
		})
	}
}

// collectReturned finds what the function returns.
func collectReturned(found map[string][]string, function *ast.FuncDecl) {
	ast.Inspect(function, func(node ast.Node) bool {
		if returned, ok := node.(*ast.ReturnStmt); ok {
			for _, result := range returned.Results {
				add(found, normal(text(result)), "")
			}
		}
		return true
	})
}

// add notes a message that has words of its own, and its type if that is known.
func add(found map[string][]string, said, kind string) {
	if !own(said) {
		return
	}
	known := found[said]
	if kind != "" && !slices.Contains(known, kind) {
		known = append(known, kind)
	}
	found[said] = known
}

// collectScript finds what a script on a node gives as its reason to fail, which calls pass on.
func collectScript(found map[string][]string, path string) {
	GinkgoHelper()
	for line := range strings.SplitSeq(content(below(path)), "\n") {
		_, failing, fails := strings.Cut(line, `fail "`)
		if fails && !strings.HasPrefix(strings.TrimSpace(line), "#") {
			add(found, normal(expanded(failing)), "")
		}
	}
}

var (
	command  = regexp.MustCompile(`\$\([^(].*`) // the rest of the line is its own
	variable = regexp.MustCompile(`\$(\(\(.*?\)\)|\{.*?\}|\w+)`)
)

// expanded is the text of a shell's string, which begins a line, with gaps for what the shell puts in.
func expanded(line string) string {
	line = variable.ReplaceAllString(line, gap)
	if shorter := command.ReplaceAllString(line, gap); shorter != line {
		return shorter
	}
	text, _, whole := strings.Cut(line, `"`)
	if !whole { // it goes on in the next line
		return text + gap
	}
	return text
}

// told is the message of the error that a call makes, and its type; "" when it makes none, or says none.
func told(made *ast.CallExpr) (said, kind string) {
	receiver, name := "", ""
	switch function := made.Fun.(type) {
	case *ast.Ident:
		name = function.Name
	case *ast.SelectorExpr:
		receiver, name = last(function.X), function.Sel.Name
	}
	at, known := makers[name]
	if !known {
		at, known = makers[receiver+"."+name]
	}
	if at < 0 {
		at = len(made.Args) - 1
	}
	if !known || at >= len(made.Args) {
		return "", ""
	}
	switch {
	case strings.EqualFold(name, "Invalid"):
		kind = "CPIError"
	case name == "Errorf" && receiver != "fmt" && ast.IsExported(receiver):
		kind = receiver
	}
	return normal(text(made.Args[at])), kind
}

// last is the last name of an expression like call.CloudError.
func last(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.Ident:
		return of.Name
	case *ast.SelectorExpr:
		return of.Sel.Name
	}
	return ""
}

// text is what is constant in an expression, with gaps between.
func text(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.BasicLit:
		if value, err := strconv.Unquote(of.Value); err == nil && of.Kind == token.STRING {
			return verb.ReplaceAllStringFunc(value, func(found string) string {
				if found == "%%" {
					return "%"
				}
				return gap
			})
		}
	case *ast.BinaryExpr:
		return text(of.X) + text(of.Y)
	case *ast.CallExpr:
		if last(of.Fun) == "Sprintf" {
			return text(of.Args[0])
		}
	}
	return gap
}

func normal(said string) string {
	return gaps.ReplaceAllString(strings.Join(strings.Fields(said), " "), gap)
}

// own reports whether a message has words of its own, and does not only name what another message is about.
func own(said string) bool {
	words := 0
	for word := range strings.FieldsSeq(said) {
		if ownWord.MatchString(word) {
			words++
		}
	}
	return words >= 2
}
