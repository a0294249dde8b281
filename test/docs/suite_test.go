// Package docs tests the documentation: its links and diagrams, and the commands, files, properties and error codes in it. The tests
// require only the checkout.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestDocs(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "docs")
}

// root is the root of the repository, or of a copy.
var root = "../.."

// pages returns all Markdown files of the repository, sorted by path.
func pages() []page {
	GinkgoHelper()
	var parsed []page
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && isExcluded(path):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			parsed = append(parsed, parsePage(relativePath(path)))
		}
		return nil
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(len(parsed)).To(BeNumerically(">", 10))
	return parsed
}

// isExcluded reports whether a directory contains generated files or code of other projects.
func isExcluded(path string) bool {
	if filepath.Dir(relativePath(path)) == "src" { // staged by the release script
		return true
	}
	return slices.Contains([]string{".git", "vendor", "bin", "blobs", "dev_releases"}, filepath.Base(path))
}

// relativePath returns the path relative to the root of the repository.
func relativePath(path string) string {
	relative, err := filepath.Rel(root, path)
	Expect(err).NotTo(HaveOccurred())
	return relative
}

// pathExists reports whether the file or directory exists in the repository. The path is relative to the root of the repository.
func pathExists(path string) bool {
	_, err := os.Stat(filepath.Join(root, path))
	return err == nil && !strings.HasPrefix(filepath.Clean(path), "..")
}

// readFile returns the content of a file. The path is relative to the root of the repository.
func readFile(path string) string {
	GinkgoHelper()
	raw, err := os.ReadFile(filepath.Join(root, path))
	Expect(err).NotTo(HaveOccurred())
	return string(raw)
}
