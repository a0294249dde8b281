package publish

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func sum(path string) string {
	GinkgoHelper()
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	return fmt.Sprintf("%x", sha256.Sum256(content))
}

// manifestOf is a tarball's release.MF.
func manifestOf(tarball string) string {
	GinkgoHelper()
	out, err := exec.Command("tar", "-xzOf", tarball, "release.MF").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return string(out)
}

var _ = Describe("A final release", Ordered, func() {
	var (
		first, second checkout
		tarball       string
	)

	BeforeAll(func() {
		first = checkedOut()
		second = first.cloned()
		tarball = first.release("VERSION=1.2.3", "FINAL=1")
	})

	It("is one to the BOSH CLI", func() {
		Expect(first.succeed("bosh", "inspect-local-release", tarball)).To(And(ContainSubstring("1.2.3"), ContainSubstring("kubernetes_cpi")))
	})

	It("names its commit, and no changes", func() {
		commit := first.succeed("git", "rev-parse", "HEAD")
		Expect(manifestOf(tarball)).To(And(ContainSubstring("commit_hash: "+commit), ContainSubstring("uncommitted_changes: false")))
	})

	It("has an SBOM with its Go toolchain and the modules that it carries, and no others", func() {
		folder := GinkgoT().TempDir()
		first.succeed("go", "run", "./scripts/components", "-sboms", folder, "-release", tarball)
		sbom, err := os.ReadFile(filepath.Join(folder, filepath.Base(tarball)+".cdx.json"))
		Expect(err).NotTo(HaveOccurred())
		version := strings.TrimSpace(first.succeed("go", "env", "GOVERSION"))
		Expect(string(sbom)).To(And(
			ContainSubstring(`"purl": "pkg:generic/bosh-kubernetes-cpi@1.2.3"`),
			ContainSubstring(`"purl": "pkg:golang/golang.org/toolchain@v0.0.1-`+version+`.linux-amd64"`),
			ContainSubstring(`"purl": "pkg:golang/stdlib@`+strings.TrimPrefix(version, "go")+`"`),
			ContainSubstring(`"purl": "pkg:golang/k8s.io/client-go@`),
			Not(ContainSubstring("ginkgo")),
		))
	})

	It("is the same tarball, bit by bit, as one of that version that is not final, in another clone", func() {
		Expect(sum(second.release("VERSION=1.2.3"))).To(Equal(sum(tarball)))
	})

	It("is the same tarball, bit by bit, where another of that version was made before, with tools that are not GNU's", func() {
		Expect(sum(second.release("VERSION=1.2.3", "FINAL=1", "PATH="+foreignTools()))).To(Equal(sum(tarball)))
	})

	It("leaves its record to git, and no more", func() {
		Expect(first.succeed("git", "status", "--porcelain", "--untracked-files=normal")).To(Equal("?? .final_builds/\n?? releases/\n"))
		first.commit()
	})

	It("cannot be made twice, and the error says how to have its tarball again", func() {
		said, err := first.run([]string{"VERSION=1.2.3", "FINAL=1"}, "scripts/create-release", "--check")
		Expect(err).To(HaveOccurred())
		Expect(said).To(And(ContainSubstring("1.2.3 is a final release already, of the commit "), ContainSubstring("take the next version"),
			MatchRegexp(`git checkout [0-9a-f]{40} && make release VERSION=1\.2\.3\n`)))
	})

	It("does not keep a clone without its blobstore from making releases that are not final", func() {
		clone := first.cloned()
		Expect(manifestOf(clone.release())).To(ContainSubstring("uncommitted_changes: false"))
		Expect(clone.succeed("git", "status", "--porcelain")).To(BeEmpty())
	})

	It("is refused in a clone without the blobstore of those before, which the error names", func() {
		said, err := first.cloned().run([]string{"VERSION=1.2.4", "FINAL=1"}, "scripts/create-release", "--check")
		Expect(err).To(HaveOccurred())
		Expect(said).To(And(ContainSubstring("the blobstore .blobstore has not all"), ContainSubstring("config/private.yml")))
	})
})

var _ = Describe("What a final release demands", Ordered, func() {
	var clean checkout

	BeforeAll(func() { clean = checkedOut() })

	BeforeEach(func() {
		clean.succeed("git", "checkout", "--quiet", "--", ".")
		clean.succeed("git", "clean", "-dffq")
	})

	check := func(variables ...string) (string, error) {
		GinkgoHelper()
		return clean.run(append(variables, "FINAL=1"), "scripts/create-release", "--check")
	}
	refused := func(words string, variables ...string) {
		GinkgoHelper()
		said, err := check(variables...)
		Expect(err).To(HaveOccurred())
		Expect(said).To(ContainSubstring(words))
	}

	It("is a version", func() {
		refused("FINAL=1 needs a version: make release VERSION=1.2.3 FINAL=1")
	})

	It("is a version of three numbers", func() {
		for _, version := range []string{"1", "1.2", "v1.2.3", "1.2.03", "1.2.3+dev.1", "latest", "1.2.3-"} {
			refused("VERSION is "+version+": a final release has three numbers, as 1.2.3", "VERSION="+version)
		}
		for _, version := range []string{"0.1.0", "1.2.3", "10.20.30-rc.1"} {
			said, err := check("VERSION=" + version)
			Expect(err).NotTo(HaveOccurred(), said)
		}
	})

	It("is a checkout without changes, unless it is told to take them", func() {
		clean.write("jobs/kubernetes_cpi/new", "")
		refused("?? jobs/kubernetes_cpi/new", "VERSION=1.2.3")
		refused("these files are not committed: commit them", "VERSION=1.2.3")
		said, err := check("VERSION=1.2.3", "FORCE=1")
		Expect(err).NotTo(HaveOccurred(), said)
	})

	It("is a blobstore that the BOSH CLI knows", func() {
		clean.write("config/final.yml", "name: bosh-kubernetes-cpi\n")
		refused("the blobstore.provider of config/final.yml is ''", "VERSION=1.2.3", "FORCE=1")
		clean.write("config/final.yml", "name: bosh-kubernetes-cpi\nblobstore: {}\n")
		refused("it has to be local, s3 or gcs", "VERSION=1.2.3", "FORCE=1")
	})

	It("is credentials for a blobstore elsewhere", func() {
		clean.write("config/final.yml", "name: bosh-kubernetes-cpi\nblobstore:\n  provider: s3\n  options:\n    bucket_name: releases\n")
		refused("there is no config/private.yml with what writes to it", "VERSION=1.2.3", "FORCE=1")
		clean.write("config/private.yml", "blobstore:\n  options:\n    access_key_id: key\n    secret_access_key: secret\n")
		said, err := check("VERSION=1.2.3", "FORCE=1")
		Expect(err).NotTo(HaveOccurred(), said)
		Expect(os.Remove(filepath.Join(clean.folder, "config", "private.yml"))).To(Succeed())
	})
})
