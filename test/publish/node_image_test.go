package publish

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/stemcell"
)

var _ = Describe("The image of bosh-node", Label("releases"), Ordered, func() {
	var (
		c         checkout
		sources   string // the unpacked package of the release
		reference string // in the release
	)
	BeforeAll(func() {
		c, sources = newCheckout(), GinkgoT().TempDir()
		tarball := c.createRelease("VERSION=1.2.3")
		c.mustRun("tar", "-xzf", tarball, "-C", sources, "packages/kubernetes_cpi.tgz")
		c.mustRun("tar", "-xzf", filepath.Join(sources, "packages", "kubernetes_cpi.tgz"), "-C", sources)
		content, err := os.ReadFile(filepath.Join(sources, "kubernetes_cpi", "node-image"))
		Expect(err).NotTo(HaveOccurred())
		reference = strings.TrimSpace(string(content))
	})

	// compile compiles the package as BOSH does, but with the toolchain and the cache of this host.
	compile := func() (target, output string, err error) {
		GinkgoHelper()
		target = GinkgoT().TempDir()
		packages := GinkgoT().TempDir()
		Expect(os.Symlink(strings.TrimSpace(c.mustRun("go", "env", "GOROOT")), filepath.Join(packages, "golang"))).To(Succeed())
		cache := filepath.Join(sources, ".gocache")
		if _, err := os.Lstat(cache); os.IsNotExist(err) {
			Expect(os.Symlink(strings.TrimSpace(c.mustRun("go", "env", "GOCACHE")), cache)).To(Succeed())
		}
		output, err = c.run([]string{"BOSH_PACKAGES_DIR=" + packages, "BOSH_COMPILE_TARGET=" + sources, "BOSH_INSTALL_TARGET=" + target},
			"bash", "-c", `cd "$BOSH_COMPILE_TARGET" && . ./packaging`)
		return target, output, err
	}

	It("has a digest in the release, in the repository of published images", func() {
		Expect(name.NewDigest(reference)).To(HaveField("Context().Name()", "registry.example.org/bosh/bosh-node"))
	})

	It("is the same if it is published from another directory", func() {
		published := filepath.Join(GinkgoT().TempDir(), "image")
		Expect(strings.TrimSpace(c.mustRun("scripts/build-node-image", "registry.example.org/bosh/bosh-node:1.2.3", published))).To(HaveSuffix(reference))
	})

	It("is next to the CPI when BOSH compiles the package, for both architectures", func() {
		target, output, err := compile()
		Expect(err).NotTo(HaveOccurred(), output)
		Expect(filepath.Join(target, "bin", "cpi")).To(BeAnExistingFile())
		images, err := layout.ImageIndexFromPath(filepath.Join(target, "node-image"))
		Expect(err).NotTo(HaveOccurred())
		manifest, err := images.IndexManifest()
		Expect(err).NotTo(HaveOccurred())
		Expect(manifest.Manifests).To(ConsistOf(HaveField("Annotations", HaveKeyWithValue(stemcell.ImageNameAnnotation, reference))))
		image, err := images.ImageIndex(manifest.Manifests[0].Digest)
		Expect(err).NotTo(HaveOccurred())
		Expect(validate.Index(image)).To(Succeed())
		Expect(image.IndexManifest()).To(HaveField("Manifests", ConsistOf(
			HaveField("Platform.String()", "linux/amd64"), HaveField("Platform.String()", "linux/arm64"))))
	})

	It("must have the digest of the release", func() {
		other := "registry.example.org/bosh/bosh-node@sha256:" + strings.Repeat("0", 64)
		Expect(os.WriteFile(filepath.Join(sources, "kubernetes_cpi", "node-image"), []byte(other), 0o600)).To(Succeed())
		_, output, err := compile()
		Expect(err).To(HaveOccurred())
		Expect(output).To(ContainSubstring("has digest "))
	})
})
