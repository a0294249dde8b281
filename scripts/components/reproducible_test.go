package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// copySources copies the sources to the directory like unpacking an archive: with current times and without git data.
func copySources(dir string) {
	GinkgoHelper()
	listed, err := exec.Command("git", "-C", "../..", "ls-files", "-z", "--", "Makefile", "go.mod", "go.sum", "*.go",
		"manifests/rbac.yaml", "manifests").Output()
	Expect(err).NotTo(HaveOccurred())
	for path := range strings.SplitSeq(strings.TrimSuffix(string(listed), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join("../..", path))
		if os.IsNotExist(err) {
			continue // removed, but not committed
		}
		Expect(err).NotTo(HaveOccurred())
		Expect(os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o750)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, path), content, 0o600)).To(Succeed())
	}
}

// buildCommands returns the commands of `make build` that build programs.
func buildCommands() []string {
	GinkgoHelper()
	output, err := exec.Command("make", "--no-print-directory", "--dry-run", "-C", "../..", "build").Output()
	Expect(err).NotTo(HaveOccurred())
	commands := strings.Split(strings.TrimSpace(string(output)), "\n")
	return slices.DeleteFunc(commands, func(command string) bool { return !strings.Contains(command, "go build") })
}

// buildAndSum runs the command in the directory, and returns the SHA-256 of the program that it builds.
func buildAndSum(dir, command string) string {
	GinkgoHelper()
	build := exec.Command("sh", "-c", command)
	build.Dir, build.Env = dir, append(os.Environ(), "GOFLAGS=-buildvcs=auto") // Go's default, which the environment may override
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	content, err := os.ReadFile(filepath.Join(dir, "bin", "cpi"))
	Expect(err).NotTo(HaveOccurred())
	return fmt.Sprintf("%x", sha256.Sum256(content))
}

// According to SECURITY.md, users can rebuild a release. These specs check that the directory, its times and its git repository do not
// change a program. They do not recompile all packages, because Go caches them independently of the directory.
var _ = Describe("make build", func() {
	It("builds an identical program in another directory, from an archive or a git repository", func() {
		unpacked, checkedOut := filepath.Join(GinkgoT().TempDir(), "unpacked"), filepath.Join(GinkgoT().TempDir(), "a", "deeper", "directory")
		copySources(unpacked)
		copySources(checkedOut)
		for _, arguments := range [][]string{
			{"init", "--quiet"}, {"add", "--all"},
			{"-c", "user.name=someone", "-c", "user.email=someone@example.com", "commit", "--quiet", "--message", "a release"}, {"tag", "v1.2.3"},
		} {
			out, err := exec.Command("git", append([]string{"-C", checkedOut}, arguments...)...).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(out))
		}
		command := buildCommands()[0]
		Expect(command).To(HaveSuffix("-o bin/cpi ./cmd/cpi"))
		Expect(buildAndSum(checkedOut, command)).To(Equal(buildAndSum(unpacked, command)))
	})

	It("builds all programs in the same way", func() {
		commands := buildCommands()
		Expect(commands).To(HaveLen(4))
		for _, command := range commands {
			Expect(strings.NewReplacer("GOOS=linux ", "", "bosh-node", "cpi", "cni-shim", "cpi", "kubectl-bosh", "cpi").Replace(command)).To(Equal(commands[0]))
		}
	})
})
