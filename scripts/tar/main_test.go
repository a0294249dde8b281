package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestTar(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "scripts/tar")
}

// makeTree creates a directory with an executable file, files in subdirectories and a symbolic link. All files have this modification time.
// mode adds mode bits that must not affect the archive.
func makeTree(modTime time.Time, mode os.FileMode) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	Expect(os.MkdirAll(filepath.Join(dir, "b", "testdata"), 0o700|mode)).To(Succeed())
	for name, mode := range map[string]os.FileMode{"program": 0o700, "b/file.go": 0o600 | mode, "b/file_test.go": 0o600, "b/testdata/case": 0o600} {
		path := filepath.Join(dir, name)
		Expect(os.WriteFile(path, []byte(name), mode)).To(Succeed())
		Expect(os.Chmod(path, mode)).To(Succeed())
		Expect(os.Chtimes(path, modTime, modTime)).To(Succeed())
	}
	Expect(os.Symlink("b/file.go", filepath.Join(dir, "link"))).To(Succeed())
	return dir
}

// list returns the names that the system's tar lists in the archive.
func list(archive string) []string {
	GinkgoHelper()
	out, err := exec.Command("tar", "-tf", archive).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return strings.Fields(string(out))
}

var _ = Describe("An archive", func() {
	pack := func(dir string, arguments ...string) string {
		GinkgoHelper()
		archive := filepath.Join(GinkgoT().TempDir(), "archive.tgz")
		request := parse(append([]string{"-czf", archive, "-C", dir}, arguments...))
		Expect(request.supported).To(BeTrue())
		Expect(request.pack()).To(Succeed())
		return archive
	}

	It("is identical for the same files with other times and modes in another directory", func() {
		first, err := os.ReadFile(pack(makeTree(time.Unix(1e9, 0), 0o044), "."))
		Expect(err).NotTo(HaveOccurred())
		second, err := os.ReadFile(pack(makeTree(time.Unix(15e8, 0), 0o066), "."))
		Expect(err).NotTo(HaveOccurred())
		Expect(bytes.Equal(first, second)).To(BeTrue())
	})

	It("has the same names as an archive that tar created", func() {
		dir := makeTree(time.Now(), 0)
		Expect(list(pack(dir, "."))).To(Equal([]string{
			"./", "./b/", "./b/file.go", "./b/file_test.go", "./b/testdata/", "./b/testdata/case", "./link", "./program",
		}))
		Expect(list(pack(dir, "program", "b"))).To(Equal([]string{
			"program", "b/", "b/file.go", "b/file_test.go", "b/testdata/", "b/testdata/case",
		}))
	})

	It("unpacks to the original files", func() {
		dir, unpacked := makeTree(time.Now(), 0), GinkgoT().TempDir()
		out, err := exec.Command("tar", "-xzf", pack(dir, "."), "-C", unpacked).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(out).To(BeEmpty(), "tar prints no warnings")
		out, err = exec.Command("diff", "-r", dir, unpacked).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		program, err := os.Stat(filepath.Join(unpacked, "program"))
		Expect(err).NotTo(HaveOccurred())
		Expect(program.Mode().Perm() & 0o111).NotTo(BeZero())
		Expect(os.Readlink(filepath.Join(unpacked, "link"))).To(Equal("b/file.go"))
	})

	It("does not contain files that are excluded by name or path", func() {
		dir, archive := makeTree(time.Now(), 0), filepath.Join(GinkgoT().TempDir(), "archive.tar")
		request := parse([]string{"--no-mac-metadata", "--exclude=testdata", "--exclude=*_test.go", "--exclude=./b/file.*", "-cf", archive, "-C", dir, "."})
		Expect(request.supported).To(BeTrue())
		Expect(request.pack()).To(Succeed())
		Expect(list(archive)).To(Equal([]string{"./", "./b/", "./link", "./program"}))
	})

	It("is removed if it is incomplete", func() {
		archive := filepath.Join(GinkgoT().TempDir(), "archive.tgz")
		Expect(parse([]string{"-czf", archive, "-C", makeTree(time.Now(), 0), "program", "missing"}).pack()).To(MatchError(os.ErrNotExist))
		Expect(archive).NotTo(BeAnExistingFile())
	})
})

var _ = Describe("The program", func() {
	It("executes the next tar for other arguments", func() {
		dir := GinkgoT().TempDir()
		out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "tar"), ".").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		command := exec.Command(filepath.Join(dir, "tar"), "--version")
		command.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		output, err := command.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
		systemOutput, err := exec.Command("tar", "--version").CombinedOutput()
		Expect(err).NotTo(HaveOccurred())
		Expect(string(output)).To(Equal(string(systemOutput)))
	})

	DescribeTable("does not support", func(arguments ...string) {
		Expect(parse(arguments).supported).To(BeFalse())
	},
		Entry("an empty command line"),
		Entry("unpacking", "--no-same-owner", "-xzf", "a.tgz", "-C", "b"),
		Entry("an unknown option", "--sort=name", "-czf", "a.tgz", "-C", "b", "."),
		Entry("an option between names", "-czf", "a.tgz", "-C", "b", ".", "-C", "c", "."),
		Entry("a command line without names", "-czf", "a.tgz", "-C", "b"),
		Entry("an absolute path", "-czf", "a.tgz", "-C", "b", "/etc"),
	)
})
