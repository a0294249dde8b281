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

func sha256Of(path string) string {
	GinkgoHelper()
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	return fmt.Sprintf("%x", sha256.Sum256(content))
}

// readReleaseManifest is a tarball's release.MF.
func readReleaseManifest(tarball string) string {
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
		first = newCheckout()
		second = first.clone()
		tarball = first.release("VERSION=1.2.3", "FINAL=1")
	})

	It("is one to the BOSH CLI", func() {
		Expect(first.mustRun("bosh", "inspect-local-release", tarball)).To(And(ContainSubstring("1.2.3"), ContainSubstring("kubernetes_cpi")))
	})

	It("names its commit, and no changes", func() {
		commit := first.mustRun("git", "rev-parse", "HEAD")
		Expect(readReleaseManifest(tarball)).To(And(ContainSubstring("commit_hash: "+commit), ContainSubstring("uncommitted_changes: false")))
	})

	It("has an SBOM with its Go toolchain and the modules that it carries, and no others", func() {
		folder := GinkgoT().TempDir()
		first.mustRun("go", "run", "./scripts/components", "-sboms", folder, "-release", tarball)
		sbom, err := os.ReadFile(filepath.Join(folder, filepath.Base(tarball)+".cdx.json"))
		Expect(err).NotTo(HaveOccurred())
		version := strings.TrimSpace(first.mustRun("go", "env", "GOVERSION"))
		Expect(string(sbom)).To(And(
			ContainSubstring(`"purl": "pkg:generic/bosh-kubernetes-cpi@1.2.3"`),
			ContainSubstring(`"purl": "pkg:golang/golang.org/toolchain@v0.0.1-`+version+`.linux-amd64"`),
			ContainSubstring(`"purl": "pkg:golang/stdlib@`+strings.TrimPrefix(version, "go")+`"`),
			ContainSubstring(`"purl": "pkg:golang/k8s.io/client-go@`),
			Not(ContainSubstring("ginkgo")),
		))
	})

	It("is the same tarball, bit by bit, as one of that version that is not final, in another clone", func() {
		Expect(sha256Of(second.release("VERSION=1.2.3"))).To(Equal(sha256Of(tarball)))
	})

	It("is the same tarball, bit by bit, where another of that version was made before, with tools that are not GNU's", func() {
		Expect(sha256Of(second.release("VERSION=1.2.3", "FINAL=1", "PATH="+portableToolsDir()))).To(Equal(sha256Of(tarball)))
	})

	It("leaves its record to git, and no more", func() {
		Expect(first.mustRun("git", "status", "--porcelain", "--untracked-files=normal")).To(Equal("?? .final_builds/\n?? releases/\n"))
		first.commit()
	})

	It("cannot be made twice, and the error says how to have its tarball again", func() {
		output, err := first.run([]string{"VERSION=1.2.3", "FINAL=1"}, "scripts/create-release", "--check")
		Expect(err).To(HaveOccurred())
		Expect(output).To(And(ContainSubstring("1.2.3 is a final release already, of the commit "), ContainSubstring("take the next version"),
			MatchRegexp(`git checkout [0-9a-f]{40} && make release VERSION=1\.2\.3\n`)))
	})

	It("does not keep a clone without its blobstore from making releases that are not final", func() {
		clone := first.clone()
		Expect(readReleaseManifest(clone.release())).To(ContainSubstring("uncommitted_changes: false"))
		Expect(clone.mustRun("git", "status", "--porcelain")).To(BeEmpty())
	})

	It("is refused in a clone without the blobstore of those before, which the error names", func() {
		output, err := first.clone().run([]string{"VERSION=1.2.4", "FINAL=1"}, "scripts/create-release", "--check")
		Expect(err).To(HaveOccurred())
		Expect(output).To(And(ContainSubstring("the blobstore .blobstore has not all"), ContainSubstring("config/private.yml")))
	})
})

var _ = Describe("What a final release demands", Ordered, func() {
	var clean checkout

	BeforeAll(func() { clean = newCheckout() })

	BeforeEach(func() {
		clean.mustRun("git", "checkout", "--quiet", "--", ".")
		clean.mustRun("git", "clean", "-dffq")
	})

	check := func(variables ...string) (string, error) {
		GinkgoHelper()
		return clean.run(append(variables, "FINAL=1"), "scripts/create-release", "--check")
	}
	expectRefused := func(words string, variables ...string) {
		GinkgoHelper()
		output, err := check(variables...)
		Expect(err).To(HaveOccurred())
		Expect(output).To(ContainSubstring(words))
	}

	It("is a version", func() {
		expectRefused("FINAL=1 needs a version: make release VERSION=1.2.3 FINAL=1")
	})

	It("is a version of three numbers", func() {
		for _, version := range []string{"1", "1.2", "v1.2.3", "1.2.03", "1.2.3+dev.1", "latest", "1.2.3-"} {
			expectRefused("VERSION is "+version+": a final release has three numbers, as 1.2.3", "VERSION="+version)
		}
		for _, version := range []string{"0.1.0", "1.2.3", "10.20.30-rc.1"} {
			output, err := check("VERSION=" + version)
			Expect(err).NotTo(HaveOccurred(), output)
		}
	})

	It("is a checkout without changes, unless it is told to take them", func() {
		clean.write("jobs/kubernetes_cpi/new", "")
		expectRefused("?? jobs/kubernetes_cpi/new", "VERSION=1.2.3")
		expectRefused("these files are not committed: commit them", "VERSION=1.2.3")
		output, err := check("VERSION=1.2.3", "FORCE=1")
		Expect(err).NotTo(HaveOccurred(), output)
	})

	It("is a blobstore that the BOSH CLI knows", func() {
		clean.write("config/final.yml", "name: bosh-kubernetes-cpi\n")
		expectRefused("the blobstore.provider of config/final.yml is ''", "VERSION=1.2.3", "FORCE=1")
		clean.write("config/final.yml", "name: bosh-kubernetes-cpi\nblobstore: {}\n")
		expectRefused("it has to be local, s3 or gcs", "VERSION=1.2.3", "FORCE=1")
	})

	It("is credentials for a blobstore elsewhere", func() {
		clean.write("config/final.yml", "name: bosh-kubernetes-cpi\nblobstore:\n  provider: s3\n  options:\n    bucket_name: releases\n")
		expectRefused("there is no config/private.yml with what writes to it", "VERSION=1.2.3", "FORCE=1")
		clean.write("config/private.yml", "blobstore:\n  options:\n    access_key_id: key\n    secret_access_key: secret\n")
		output, err := check("VERSION=1.2.3", "FORCE=1")
		Expect(err).NotTo(HaveOccurred(), output)
		Expect(os.Remove(filepath.Join(clean.folder, "config", "private.yml"))).To(Succeed())
	})
})
