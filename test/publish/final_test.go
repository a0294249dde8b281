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

// sha256Of returns the SHA-256 checksum of a file, in hexadecimal.
func sha256Of(path string) string {
	GinkgoHelper()
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	return fmt.Sprintf("%x", sha256.Sum256(content))
}

// readReleaseManifest returns the release.MF of a tarball.
func readReleaseManifest(tarball string) string {
	GinkgoHelper()
	out, err := exec.Command("tar", "-xzOf", tarball, "release.MF").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return string(out)
}

var _ = Describe("A final release", Label("releases"), Ordered, func() {
	var (
		first, second checkout
		tarball       string
	)

	BeforeAll(func() {
		first = newCheckout()
		second = first.clone()
		tarball = first.createRelease("VERSION=1.2.3", "FINAL=1")
	})

	It("is a valid release for the BOSH CLI", func() {
		Expect(first.mustRun("bosh", "inspect-local-release", tarball)).To(And(ContainSubstring("1.2.3"), ContainSubstring("kubernetes_cpi")))
	})

	It("records its commit, and that the checkout has no uncommitted changes", func() {
		commit := first.mustRun("git", "rev-parse", "HEAD")
		Expect(readReleaseManifest(tarball)).To(And(ContainSubstring("commit_hash: "+commit), ContainSubstring("uncommitted_changes: false")))
	})

	It("has an SBOM with only the modules of its programs", func() {
		dir := GinkgoT().TempDir()
		first.mustRun("go", "run", "-C", "scripts/components", ".", "-sboms", dir, "-release", tarball)
		sbom, err := os.ReadFile(filepath.Join(dir, filepath.Base(tarball)+".cdx.json"))
		Expect(err).NotTo(HaveOccurred())
		version := strings.TrimSpace(first.mustRun("go", "env", "GOVERSION"))
		Expect(string(sbom)).To(And(
			ContainSubstring(`"purl": "pkg:generic/bosh-kubernetes-cpi@1.2.3"`),
			ContainSubstring(`"purl": "pkg:golang/stdlib@`+strings.TrimPrefix(version, "go")+`"`),
			ContainSubstring(`"purl": "pkg:golang/k8s.io/client-go@`),
			Not(ContainSubstring("ginkgo")),
		))
	})

	It("is bit-for-bit identical to a non-final release of the same version in another clone", func() {
		Expect(sha256Of(second.createRelease("VERSION=1.2.3"))).To(Equal(sha256Of(tarball)))
	})

	It("is bit-for-bit identical if it is recreated with tools other than GNU's", func() {
		Expect(sha256Of(second.createRelease("VERSION=1.2.3", "FINAL=1", "PATH="+portableToolsDir()))).To(Equal(sha256Of(tarball)))
	})

	It("adds only its records to the checkout", func() {
		Expect(first.mustRun("git", "status", "--porcelain", "--untracked-files=normal")).To(Equal("?? .final_builds/\n?? releases/\n"))
		first.commit()
	})

	It("cannot be created twice, and the error shows how to recreate its tarball", func() {
		output, err := first.run([]string{"VERSION=1.2.3", "FINAL=1"}, "scripts/create-release", "--check")
		Expect(err).To(HaveOccurred())
		Expect(output).To(And(ContainSubstring("final release 1.2.3 already exists at commit "), ContainSubstring("use the next version"),
			MatchRegexp(`git checkout [0-9a-f]{40} && make release VERSION=1\.2\.3\n`)))
	})

	It("does not prevent non-final releases in a clone without its blobstore", func() {
		clone := first.clone()
		Expect(readReleaseManifest(clone.createRelease())).To(ContainSubstring("uncommitted_changes: false"))
		Expect(clone.mustRun("git", "status", "--porcelain")).To(BeEmpty())
	})

	It("is rejected in a clone without the blobstore of earlier releases", func() {
		output, err := first.clone().run([]string{"VERSION=1.2.4", "FINAL=1"}, "scripts/create-release", "--check")
		Expect(err).To(HaveOccurred())
		Expect(output).To(And(ContainSubstring("not found in the blobstore .blobstore"), ContainSubstring("config/private.yml")))
	})
})

var _ = Describe("The release checklist", Ordered, func() {
	var clean checkout
	BeforeAll(func() { clean = newCheckout() })

	It("passes for a clean checkout, and lists at most eight steps", func() {
		output := clean.mustRun("scripts/release-checklist", "0.1.0")
		Expect(output).To(And(ContainSubstring("\n1. "), Not(ContainSubstring("\n9. ")), Not(ContainSubstring("FAILED"))))
	})

	It("lists fewer steps if some are done", func() {
		Expect(clean.mustRun("scripts/release-checklist", "0.1.0")).To(ContainSubstring("Configure a blobstore"))
		clean.write("config/final.yml", "name: bosh-kubernetes-cpi\nblobstore:\n  provider: s3\n")
		clean.commit()
		Expect(clean.mustRun("scripts/release-checklist", "0.1.0")).NotTo(ContainSubstring("Configure a blobstore"))
	})

	DescribeTable("fails", func(version, check string, change func()) {
		change()
		output, err := clean.run(nil, "scripts/release-checklist", version)
		Expect(err).To(HaveOccurred())
		Expect(output).To(ContainSubstring("FAILED " + check))
	},
		Entry("for an invalid version", "1.2", "1.2 is a version with three numbers", func() {}),
		Entry("for a tagged version", "0.2.0", "0.2.0 is neither tagged nor recorded", func() { clean.mustRun("git", "tag", "v0.2.0") }),
		Entry("for uncommitted changes", "0.1.0", "the checkout has no uncommitted changes", func() { clean.write("new", "") }),
	)
})

var _ = Describe("Publishing", Ordered, func() {
	var clean checkout
	BeforeAll(func() { clean = newCheckout() })

	DescribeTable("requires", func(message string, variables []string, version, home string) {
		output, err := clean.run(variables, "scripts/publish", version, GinkgoT().TempDir(), home)
		Expect(err).To(HaveOccurred())
		Expect(output).To(ContainSubstring(message))
	},
		Entry("a version with three numbers", "VERSION 1.2 is not valid", nil, "1.2", "https://github.com/a/b"),
		Entry("a URL", "HOME_URL a/b is not valid", nil, "1.2.3", "a/b"),
		Entry("a place for images, unless it is known", "set IMAGES", []string{"IMAGES="}, "1.2.3", "https://example.org/b"),
		Entry("release notes", `CHANGELOG.md has no section "## [1.2.3]"`, nil, "1.2.3", "https://github.com/a/b"),
	)
})

var _ = Describe("A final release requires", Ordered, func() {
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
	expectRejected := func(message string, variables ...string) {
		GinkgoHelper()
		output, err := check(variables...)
		Expect(err).To(HaveOccurred())
		Expect(output).To(ContainSubstring(message))
	}

	It("a version", func() {
		expectRejected("FINAL=1 requires VERSION; run make release VERSION=1.2.3 FINAL=1")
	})

	It("a version with three numbers", func() {
		for _, version := range []string{"1", "1.2", "v1.2.3", "1.2.03", "1.2.3+dev.1", "latest", "1.2.3-"} {
			expectRejected("VERSION "+version+" is not valid for a final release; use three numbers", "VERSION="+version)
		}
		for _, version := range []string{"0.1.0", "1.2.3", "10.20.30-rc.1"} {
			output, err := check("VERSION=" + version)
			Expect(err).NotTo(HaveOccurred(), output)
		}
	})

	It("a checkout without changes, unless FORCE is set", func() {
		clean.write("jobs/kubernetes_cpi/new", "")
		expectRejected("?? jobs/kubernetes_cpi/new", "VERSION=1.2.3")
		expectRejected("the checkout has uncommitted changes; commit them", "VERSION=1.2.3")
		output, err := check("VERSION=1.2.3", "FORCE=1")
		Expect(err).NotTo(HaveOccurred(), output)
	})

	It("a blobstore that the BOSH CLI supports", func() {
		clean.write("config/final.yml", "name: bosh-kubernetes-cpi\n")
		expectRejected("blobstore.provider '' in config/final.yml is not valid", "VERSION=1.2.3", "FORCE=1")
		clean.write("config/final.yml", "name: bosh-kubernetes-cpi\nblobstore: {}\n")
		expectRejected("use local, s3 or gcs", "VERSION=1.2.3", "FORCE=1")
	})

	It("the repository of the image that it refers to", func() {
		expectRejected("a final release requires IMAGES", "VERSION=1.2.3", "IMAGES=")
	})

	It("credentials for a remote blobstore", func() {
		clean.write("config/final.yml", "name: bosh-kubernetes-cpi\nblobstore:\n  provider: s3\n  options:\n    bucket_name: releases\n")
		expectRejected("no credentials for the s3 blobstore of config/final.yml; create config/private.yml", "VERSION=1.2.3", "FORCE=1")
		clean.write("config/private.yml", "blobstore:\n  options:\n    access_key_id: key\n    secret_access_key: secret\n")
		output, err := check("VERSION=1.2.3", "FORCE=1")
		Expect(err).NotTo(HaveOccurred(), output)
		Expect(os.Remove(filepath.Join(clean.dir, "config", "private.yml"))).To(Succeed())
	})
})
