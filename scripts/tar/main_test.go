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

// makeTree creates a folder with an executable file, a file in a subfolder and a symbolic link. All files have this time; mode adds
// permissions that must not affect the archive.
func makeTree(at time.Time, mode os.FileMode) string {
	GinkgoHelper()
	folder := GinkgoT().TempDir()
	Expect(os.MkdirAll(filepath.Join(folder, "b", "testdata"), 0o700|mode)).To(Succeed())
	for name, mode := range map[string]os.FileMode{"program": 0o700, "b/file.go": 0o600 | mode, "b/file_test.go": 0o600, "b/testdata/case": 0o600} {
		path := filepath.Join(folder, name)
		Expect(os.WriteFile(path, []byte(name), mode)).To(Succeed())
		Expect(os.Chmod(path, mode)).To(Succeed())
		Expect(os.Chtimes(path, at, at)).To(Succeed())
	}
	Expect(os.Symlink("b/file.go", filepath.Join(folder, "link"))).To(Succeed())
	return folder
}

// list returns the names that the system's tar lists in the archive.
func list(archive string) []string {
	GinkgoHelper()
	out, err := exec.Command("tar", "-tf", archive).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return strings.Fields(string(out))
}

var _ = Describe("An archive", func() {
	pack := func(folder string, arguments ...string) string {
		GinkgoHelper()
		archive := filepath.Join(GinkgoT().TempDir(), "archive.tgz")
		request := parse(append([]string{"-czf", archive, "-C", folder}, arguments...))
		Expect(request.supported).To(BeTrue())
		Expect(request.pack()).To(Succeed())
		return archive
	}

	It("is identical for the same files with another time, with other modes, in another folder", func() {
		one, err := os.ReadFile(pack(makeTree(time.Unix(1e9, 0), 0o044), "."))
		Expect(err).NotTo(HaveOccurred())
		other, err := os.ReadFile(pack(makeTree(time.Unix(15e8, 0), 0o066), "."))
		Expect(err).NotTo(HaveOccurred())
		Expect(bytes.Equal(one, other)).To(BeTrue())
	})

	It("has the same names as an archive of tar", func() {
		folder := makeTree(time.Now(), 0)
		Expect(list(pack(folder, "."))).To(Equal([]string{
			"./", "./b/", "./b/file.go", "./b/file_test.go", "./b/testdata/", "./b/testdata/case", "./link", "./program",
		}))
		Expect(list(pack(folder, "program", "b"))).To(Equal([]string{
			"program", "b/", "b/file.go", "b/file_test.go", "b/testdata/", "b/testdata/case",
		}))
	})

	It("unpacks to the original files", func() {
		folder, unpacked := makeTree(time.Now(), 0), GinkgoT().TempDir()
		out, err := exec.Command("tar", "-xzf", pack(folder, "."), "-C", unpacked).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(out).To(BeEmpty(), "tar prints no warnings")
		out, err = exec.Command("diff", "-r", folder, unpacked).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		program, err := os.Stat(filepath.Join(unpacked, "program"))
		Expect(err).NotTo(HaveOccurred())
		Expect(program.Mode().Perm() & 0o111).NotTo(BeZero())
		Expect(os.Readlink(filepath.Join(unpacked, "link"))).To(Equal("b/file.go"))
	})

	It("does not contain excluded files, by the last part of a name or by a path", func() {
		folder, archive := makeTree(time.Now(), 0), filepath.Join(GinkgoT().TempDir(), "archive.tar")
		request := parse([]string{"--no-mac-metadata", "--exclude=testdata", "--exclude=*_test.go", "--exclude=./b/file.*", "-cf", archive, "-C", folder, "."})
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
		folder := GinkgoT().TempDir()
		out, err := exec.Command("go", "build", "-o", filepath.Join(folder, "tar"), ".").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		command := exec.Command(filepath.Join(folder, "tar"), "--version")
		command.Env = append(os.Environ(), "PATH="+folder+string(os.PathListSeparator)+os.Getenv("PATH"))
		ours, err := command.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(ours))
		theirs, err := exec.Command("tar", "--version").CombinedOutput()
		Expect(err).NotTo(HaveOccurred())
		Expect(string(ours)).To(Equal(string(theirs)))
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
