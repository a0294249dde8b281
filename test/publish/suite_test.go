// Package publish tests the scripts that make what is published: the BOSH release, with the real BOSH CLI, in git checkouts of its own.
package publish

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestPublish(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "publish")
}

const root = "../.."

// checkout is a git checkout, and a home folder without a cache of the BOSH CLI.
type checkout struct{ folder, home string }

// newCheckout makes a checkout with what is tracked and what is to be, committed at a fixed time, so that each has the same commit.
func newCheckout() checkout {
	GinkgoHelper()
	c := checkout{folder: filepath.Join(GinkgoT().TempDir(), "checkout"), home: GinkgoT().TempDir()}
	listed, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	Expect(err).NotTo(HaveOccurred())
	for path := range strings.SplitSeq(strings.TrimSuffix(string(listed), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, path))
		if os.IsNotExist(err) || strings.HasPrefix(path, ".final_builds/") || strings.HasPrefix(path, "releases/") {
			continue // removed and not committed yet, or of an earlier release
		}
		Expect(err).NotTo(HaveOccurred())
		content, err := os.ReadFile(filepath.Join(root, path))
		Expect(err).NotTo(HaveOccurred())
		Expect(os.MkdirAll(filepath.Join(c.folder, filepath.Dir(path)), 0o750)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(c.folder, path), content, info.Mode().Perm())).To(Succeed())
	}
	c.mustRun("git", "init", "--quiet")
	c.commit()
	c.addFakeToolchain()
	return c
}

// clone is a clone of the checkout.
func (c checkout) clone() checkout {
	GinkgoHelper()
	clone := checkout{folder: filepath.Join(GinkgoT().TempDir(), "a", "clone"), home: GinkgoT().TempDir()}
	c.mustRun("git", "clone", "--quiet", c.folder, clone.folder)
	clone.addFakeToolchain()
	return clone
}

func (c checkout) commit() {
	GinkgoHelper()
	c.mustRun("git", "add", "--all")
	c.mustRun("git", "-c", "user.name=someone", "-c", "user.email=someone@example.com", "commit", "--quiet", "--message", "a commit")
}

// addFakeToolchain puts a small file where the Go toolchain is, which is not looked into here.
func (c checkout) addFakeToolchain() {
	GinkgoHelper()
	version, err := exec.Command("go", "env", "GOVERSION").Output()
	Expect(err).NotTo(HaveOccurred())
	dir := filepath.Join(c.folder, "src", "toolchains")
	Expect(os.MkdirAll(dir, 0o750)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(dir, strings.TrimSpace(string(version))+".linux-amd64.tar.gz"), []byte("Go"), 0o600)).To(Succeed())
}

// run runs a command in the checkout with these variables, and returns all that it says.
func (c checkout) run(variables []string, program string, arguments ...string) (string, error) {
	GinkgoHelper()
	command := exec.CommandContext(context.Background(), program, arguments...)
	command.Dir = c.folder
	cache, err := exec.Command("go", "env", "GOPATH", "GOCACHE", "GOMODCACHE").Output()
	Expect(err).NotTo(HaveOccurred())
	paths := strings.Fields(string(cache))
	command.Env = append(append(os.Environ(), "HOME="+c.home, "GOPATH="+paths[0], "GOCACHE="+paths[1], "GOMODCACHE="+paths[2],
		"GO_PLATFORMS=linux-amd64", "VERSION=", "FINAL=", "FORCE=",
		"GIT_AUTHOR_DATE=2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z"), variables...)
	output, err := command.CombinedOutput()
	return string(output), err
}

func (c checkout) mustRun(program string, arguments ...string) string {
	GinkgoHelper()
	output, err := c.run(nil, program, arguments...)
	Expect(err).NotTo(HaveOccurred(), output)
	return output
}

// release makes a release's tarball and returns its path.
func (c checkout) release(variables ...string) string {
	GinkgoHelper()
	tarball := filepath.Join(GinkgoT().TempDir(), "release.tgz")
	output, err := c.run(variables, "scripts/create-release", tarball)
	Expect(err).NotTo(HaveOccurred(), output)
	return tarball
}

// write writes a file of the checkout.
func (c checkout) write(path, content string) {
	GinkgoHelper()
	Expect(os.MkdirAll(filepath.Dir(filepath.Join(c.folder, path)), 0o750)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(c.folder, path), []byte(content), 0o600)).To(Succeed())
}
