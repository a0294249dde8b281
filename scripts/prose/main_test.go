package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestProse(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "scripts/prose")
}

// collapseSpaces returns the lines of the text, with each run of spaces replaced by one space.
func collapseSpaces(text []byte) []string {
	var lines []string
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

var _ = Describe("The text that Vale reads", func() {
	It("contains the comments and strings of Go code at their original positions", func() {
		source := "// Package a has\n// two lines.\npackage a\n\nvar text = \"a \\\"b\\\"\\tc\" +\n\t\" d\" /* e */ // f\n"
		text := prose(".go", []byte(source))
		Expect(collapseSpaces(text)).To(Equal([]string{"Package a has", "two lines.", "", "", `"a \"b\" c`, `d" e f`}))
		Expect(text).To(HaveLen(len(source)))
		Expect(strings.Index(string(text), "two")).To(Equal(strings.Index(source, "two")))
	})

	It("omits string literals without spaces, such as names and keys", func() {
		Expect(collapseSpaces(prose(".go", []byte("package a\n\nvar keys = []string{\"key\", `raw`, `raw text`}\n")))).To(
			Equal([]string{"", "", "`raw text`"}))
	})

	It("contains other files without comment markers", func() {
		Expect(collapseSpaces(prose(".sh", []byte("#!/bin/bash\n# A comment\necho \"a # b\" # c\n")))).To(
			Equal([]string{"!/bin/bash", "A comment", `echo "a # b" # c`}))
	})

	It("does not contain excluded lines", func() {
		Expect(collapseSpaces(prose(".go", []byte("// a\n\t// vale off\n// b\n\t// vale on: the rest is prose\n// c\n// d // vale off\n// e\n")))).To(
			Equal([]string{"a", "", "", "", "c", "", "e"}))
		Expect(collapseSpaces(prose("", []byte("a\n# vale off\nb\n# vale on\nc\nd # vale off: the name of a program\ne\n")))).To(
			Equal([]string{"a", "", "", "", "c", "", "e"}))
	})

	It("contains complete Markdown files", func() {
		Expect(string(prose(".md", []byte("# a\n<!-- vale off -->\nb\n")))).To(Equal("# a\n<!-- vale off -->\nb\n"))
	})
})

var _ = Describe("copyProse", func() {
	It("writes files to the same relative paths, and skips listed files that no longer exist", func() {
		target := GinkgoT().TempDir()
		GinkgoT().Chdir(GinkgoT().TempDir())
		Expect(os.Mkdir("dir", 0o700)).To(Succeed())
		Expect(os.WriteFile("dir/script", []byte("# a\n"), 0o600)).To(Succeed())
		Expect(copyProse(strings.NewReader("dir/script\ndeleted\n"), target)).To(Succeed())
		Expect(os.ReadFile(filepath.Join(target, "dir", "script"))).To(BeEquivalentTo("  a\n"))
	})
})
