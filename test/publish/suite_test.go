// Package publish tests the scripts that create the published artifacts, above all the BOSH release. It uses the real BOSH CLI in
// temporary Git checkouts.
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

// checkout is a Git checkout with its own home directory, so that it has no cache of the BOSH CLI.
type checkout struct{ dir, home string }

// newCheckout returns a checkout with all files that are tracked or not ignored, in one commit. The commit has a fixed time, so that
// it is the same in all checkouts.
func newCheckout() checkout {
	GinkgoHelper()
	c := checkout{dir: filepath.Join(GinkgoT().TempDir(), "checkout"), home: GinkgoT().TempDir()}
	listed, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	Expect(err).NotTo(HaveOccurred())
	for path := range strings.SplitSeq(strings.TrimSuffix(string(listed), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, path))
		if os.IsNotExist(err) || strings.HasPrefix(path, ".final_builds/") || strings.HasPrefix(path, "releases/") {
			continue // deleted but not committed, or part of an earlier release
		}
		Expect(err).NotTo(HaveOccurred())
		content, err := os.ReadFile(filepath.Join(root, path))
		Expect(err).NotTo(HaveOccurred())
		Expect(os.MkdirAll(filepath.Join(c.dir, filepath.Dir(path)), 0o750)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(c.dir, path), content, info.Mode().Perm())).To(Succeed())
	}
	c.write("config/final.yml", "name: bosh-kubernetes-cpi\nblobstore:\n  provider: local\n  options:\n    blobstore_path: .blobstore\n")
	c.mustRun("git", "init", "--quiet")
	c.commit()
	return c
}

// clone clones the checkout.
func (c checkout) clone() checkout {
	GinkgoHelper()
	clone := checkout{dir: filepath.Join(GinkgoT().TempDir(), "a", "clone"), home: GinkgoT().TempDir()}
	c.mustRun("git", "clone", "--quiet", c.dir, clone.dir)
	return clone
}

// commit commits all changes.
func (c checkout) commit() {
	GinkgoHelper()
	c.mustRun("git", "add", "--all")
	c.mustRun("git", "-c", "user.name=someone", "-c", "user.email=someone@example.com", "commit", "--quiet", "--message", "a commit")
}

// run runs a command in the checkout with these environment variables, and returns its output.
func (c checkout) run(variables []string, program string, arguments ...string) (string, error) {
	GinkgoHelper()
	command := exec.CommandContext(context.Background(), program, arguments...)
	command.Dir = c.dir
	cache, err := exec.Command("go", "env", "GOPATH", "GOCACHE", "GOMODCACHE").Output()
	Expect(err).NotTo(HaveOccurred())
	paths := strings.Fields(string(cache))
	command.Env = append(append(os.Environ(), "HOME="+c.home, "GOPATH="+paths[0], "GOCACHE="+paths[1], "GOMODCACHE="+paths[2],
		"PLATFORMS=linux-amd64", "VERSION=", "FINAL=", "FORCE=", "IMAGES=registry.example.org/bosh",
		"GIT_AUTHOR_DATE=2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z"), variables...)
	output, err := command.CombinedOutput()
	return string(output), err
}

// mustRun runs a command in the checkout that must succeed, and returns its output.
func (c checkout) mustRun(program string, arguments ...string) string {
	GinkgoHelper()
	output, err := c.run(nil, program, arguments...)
	Expect(err).NotTo(HaveOccurred(), output)
	return output
}

// createRelease creates the tarball of a release and returns its path.
func (c checkout) createRelease(variables ...string) string {
	GinkgoHelper()
	tarball := filepath.Join(GinkgoT().TempDir(), "release.tgz")
	output, err := c.run(variables, "scripts/create-release", tarball)
	Expect(err).NotTo(HaveOccurred(), output)
	return tarball
}

// write writes a file in the checkout.
func (c checkout) write(path, content string) {
	GinkgoHelper()
	Expect(os.MkdirAll(filepath.Dir(filepath.Join(c.dir, path)), 0o750)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(c.dir, path), []byte(content), 0o600)).To(Succeed())
}
