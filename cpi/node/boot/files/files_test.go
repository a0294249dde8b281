//go:build linux

package files_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/boot/files"
	"bosh-kubernetes-cpi/cpi/node/system"
)

func TestFiles(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "node boot files")
}

var _ = Describe("A file that a later start needs", func() {
	var (
		sys   system.System
		calls []string
	)
	BeforeEach(func() {
		calls = nil
		sys = system.System{Root: GinkgoT().TempDir(), Before: func(call, path string) error {
			calls = append(calls, call+" "+path)
			return nil
		}}
	})
	write := func(name, content string) {
		GinkgoHelper()
		Expect(os.WriteFile(sys.Path(name), []byte(content), 0o600)).To(Succeed())
	}

	It("is synced before it is renamed, and has its mode", func() {
		Expect(files.Update(sys, "/a/b", []byte("content"), 0o604)).To(Succeed())
		Expect(os.ReadFile(sys.Path("/a/b"))).To(Equal([]byte("content")))
		Expect(os.Stat(sys.Path("/a/b"))).To(HaveField("Mode()", fs.FileMode(0o604)))
		Expect(calls[len(calls)-5:]).To(Equal([]string{"open /a/b.new", "fsync /a/b.new", "rename /a/b.new", "open /a", "fsync /a"}))
	})

	It("is kept if it has the content already", func() {
		write("b", "content")
		Expect(files.Update(sys, "/b", []byte("content"), 0o644)).To(Succeed())
		Expect(calls).To(Equal([]string{"read /b"}))
	})

	It("replaces the rest of an interrupted update", func() {
		write("b", "")
		Expect(os.Symlink("/dev/full", sys.Path("b.new"))).To(Succeed())
		Expect(files.Update(sys, "/b", []byte("content"), 0o644)).To(Succeed())
		Expect(os.ReadFile(sys.Path("b"))).To(Equal([]byte("content")))
	})

	It("is a link", func() {
		Expect(os.Symlink("old", sys.Path("link"))).To(Succeed())
		Expect(os.Symlink("rest", sys.Path("link.new"))).To(Succeed())
		write("file", "")
		for _, path := range []string{"/link", "/file", "/new"} {
			Expect(files.UpdateLink(sys, "target", path)).To(Succeed())
			Expect(os.Readlink(sys.Path(path))).To(Equal("target"))
		}
		calls = nil
		Expect(files.UpdateLink(sys, "target", "/link")).To(Succeed())
		Expect(calls).To(Equal([]string{"readlink /link"}))
	})

	DescribeTable("has the old or the new content, whichever system call fails", func(update func() error) {
		for number := 1; ; number++ {
			write("b", "old")
			count := 0
			sys.Before = func(string, string) error {
				if count++; count == number {
					return unix.EIO
				}
				return nil
			}
			err := update()
			content, readErr := os.ReadFile(sys.Path("b"))
			Expect(readErr).NotTo(HaveOccurred())
			if count < number {
				Expect(err).NotTo(HaveOccurred())
				return
			}
			Expect(err).To(MatchError(unix.EIO))
			Expect(string(content)).To(BeElementOf("old", "new"))
			Expect(os.RemoveAll(sys.Path("b"))).To(Succeed())
		}
	},
		Entry("as a file", func() error { return files.Update(sys, "/b", []byte("new"), 0o644) }),
		Entry("as a link", func() error {
			Expect(os.WriteFile(sys.Path("target"), []byte("new"), 0o600)).To(Succeed())
			return files.UpdateLink(sys, "target", "/b")
		}),
	)
})

var _ = Describe("The type of a file", func() {
	var sys system.System
	BeforeEach(func() {
		sys = system.System{Root: GinkgoT().TempDir()}
		Expect(os.WriteFile(sys.Path("file"), nil, 0o600)).To(Succeed())
		Expect(os.WriteFile(sys.Path("program"), nil, 0o600)).To(Succeed())
		Expect(os.Chmod(sys.Path("program"), 0o700)).To(Succeed())
		Expect(os.Symlink("program", sys.Path("link"))).To(Succeed())
	})

	It("is that of the target of a link", func() {
		Expect(files.IsDirectory(sys, "/")).To(BeTrue())
		Expect(files.IsDirectory(sys, "/file")).To(BeFalse())
		Expect(files.IsDevice(sys, "/file")).To(BeFalse())
		Expect(files.IsExecutable(sys, "/link")).To(BeTrue())
		Expect(files.IsExecutable(sys, "/file")).To(BeFalse())
		Expect(files.IsExecutable(sys, "/")).To(BeFalse())
	})

	It("is unset if the file does not exist", func() {
		for _, path := range []string{"/none", "/none/below", "/file/below"} {
			Expect(files.Find(sys, path)).To(BeNil())
			Expect(files.IsExecutable(sys, path)).To(BeFalse())
		}
		Expect(files.Read(sys, "/none")).To(BeNil())
	})

	It("is unknown after an error", func() {
		sys.Before = func(string, string) error { return unix.EACCES }
		_, err := files.IsDirectory(sys, "/file")
		Expect(err).To(MatchError(unix.EACCES))
		_, err = files.Read(sys, "/file")
		Expect(err).To(MatchError(unix.EACCES))
	})

	It("differs from that of an empty file", func() {
		Expect(files.Read(sys, "/file")).To(And(BeEmpty(), Not(BeNil())))
	})

	It("includes the sticky bit and the like", func() {
		path := filepath.Join(sys.Root, "file")
		for _, mode := range []fs.FileMode{0o750, fs.ModeSticky | 0o777, fs.ModeSetgid | 0o750, fs.ModeSetuid | 0o711} {
			Expect(os.Chmod(path, mode)).To(Succeed())
			stat, err := sys.Stat("/file")
			Expect(err).NotTo(HaveOccurred())
			Expect(files.Mode(stat)).To(Equal(mode))
		}
	})
})
