// Package docs tests the documents: that links lead somewhere, that commands, files and properties which they
// name are there, and that pictures are whole. It needs nothing but the checkout.
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

const root = "../.."

// pages are all documents of the repository, by their paths below its root, in order.
func pages() []page {
	GinkgoHelper()
	var found []page
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && isForeign(path):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			found = append(found, parsePage(relativePath(path)))
		}
		return nil
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(len(found)).To(BeNumerically(">", 10))
	return found
}

// isForeign tells folders whose content is not this repository's: what commands make, and other projects' modules.
func isForeign(path string) bool {
	if filepath.Dir(relativePath(path)) == "src" { // what the release script stages
		return true
	}
	return slices.Contains([]string{".git", "vendor", "bin", "blobs", "dev_releases"}, filepath.Base(path))
}

// relativePath is the path without the way to the root.
func relativePath(path string) string {
	relative, err := filepath.Rel(root, path)
	Expect(err).NotTo(HaveOccurred())
	return relative
}

// pathExists reports whether the file or folder, by its path below the root, is there.
func pathExists(path string) bool {
	_, err := os.Stat(filepath.Join(root, path))
	return err == nil && !strings.HasPrefix(filepath.Clean(path), "..")
}

func readFile(path string) string {
	GinkgoHelper()
	raw, err := os.ReadFile(filepath.Join(root, path))
	Expect(err).NotTo(HaveOccurred())
	return string(raw)
}
