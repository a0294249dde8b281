// Command prose copies text files to a directory for scripts/lint-prose. It keeps only the comments and string literals of Go files, and
// removes the comment markers of other files. Every word keeps its line and column.
//
//	go run ./scripts/prose DIR <FILES    (FILES contains relative paths, one per line)
//
// The comment "vale off" excludes the lines up to the comment "vale on". At the end of a line, it excludes only that line. Markdown files
// are copied unchanged, because Vale handles their comments.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./scripts/prose DIR <FILES")
		os.Exit(2)
	}
	if err := copyProse(os.Stdin, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

func copyProse(files io.Reader, dir string) error {
	lines := bufio.NewScanner(files)
	for lines.Scan() {
		source, err := os.ReadFile(lines.Text())
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted without git rm
		} else if err != nil {
			return err
		}
		target := filepath.Join(dir, lines.Text())
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, prose(filepath.Ext(lines.Text()), source), 0o600); err != nil {
			return err
		}
	}
	return lines.Err()
}

var (
	commentMarker = regexp.MustCompile(`(?m)^[ \t]*#+`)
	slashes       = regexp.MustCompile(`^//|^/\*|\*/$`)
	escape        = regexp.MustCompile(`\\[nrt]`)
	concatenation = regexp.MustCompile("[\"`]\\s*\\+\\s*[\"`]")
	exception     = regexp.MustCompile(`^(.*?)(?://|#|<!--)\s*vale (off|on)\b`)
)

// prose returns the text for Vale of a file with this extension.
func prose(extension string, source []byte) []byte {
	switch extension {
	case ".md":
		return source
	case ".go":
		return withoutExceptions(goProse(source), source)
	}
	return withoutExceptions(commentMarker.ReplaceAllFunc(source, blank), source)
}

// goProse returns the comments and string literals of Go source. It joins concatenated literals. It omits literals without a space, which
// are names or keys.
func goProse(source []byte) []byte {
	text := blank(source)
	file := token.NewFileSet().AddFile("", -1, len(source))
	var tokens scanner.Scanner
	tokens.Init(file, source, func(token.Position, string) {}, scanner.ScanComments)
	for {
		position, kind, literal := tokens.Scan()
		part := []byte(literal)
		switch {
		case kind == token.EOF:
			return concatenation.ReplaceAllFunc(text, blank)
		case kind == token.COMMENT:
			part = slashes.ReplaceAllFunc(part, blank)
		case kind == token.ADD:
			part = []byte("+")
		case kind != token.STRING || !bytes.ContainsAny(part, " \n"):
			continue
		case part[0] == '"':
			part = escape.ReplaceAllFunc(part, blank)
		}
		copy(text[file.Offset(position):], part)
	}
}

// withoutExceptions blanks the lines of text that are excluded by comments in source.
func withoutExceptions(text, source []byte) []byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	off := false
	for i, line := range bytes.SplitAfter(source, []byte("\n")) {
		match := exception.FindSubmatch(line)
		if len(match) > 0 && len(bytes.TrimSpace(match[1])) == 0 {
			off = string(match[2]) == "off"
		}
		if off || len(match) > 0 {
			lines[i] = blank(lines[i])
		}
	}
	return bytes.Join(lines, nil)
}

// blank replaces every byte except line breaks by a space.
func blank(text []byte) []byte {
	spaces := bytes.Repeat([]byte(" "), len(text))
	for i, b := range text {
		if b == '\n' {
			spaces[i] = b
		}
	}
	return spaces
}
