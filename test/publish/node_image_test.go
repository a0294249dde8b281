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

var _ = Describe("The package of a release", Label("releases"), Ordered, func() {
	var (
		c         checkout
		sources   string // the unpacked package
		installed string // the package as BOSH installs it
		reference string // of the image bosh-node
	)
	BeforeAll(func() {
		c, sources, installed = newCheckout(), GinkgoT().TempDir(), GinkgoT().TempDir()
		tarball := c.createRelease("VERSION=1.2.3")
		c.mustRun("tar", "-xzf", tarball, "-C", sources, "packages/kubernetes_cpi.tgz")
		c.mustRun("tar", "-xzf", filepath.Join(sources, "packages", "kubernetes_cpi.tgz"), "-C", sources)
	})

	install := func() (string, error) {
		GinkgoHelper()
		return c.run([]string{"BOSH_INSTALL_TARGET=" + installed}, "bash", "-c", `cd "$1" && . ./packaging`, "bash", sources)
	}

	It("installs the CPI for the platform of the host", func() {
		output, err := install()
		Expect(err).NotTo(HaveOccurred(), output)
		output, err = c.run(nil, filepath.Join(installed, "bin", "cpi"))
		Expect(err).NotTo(HaveOccurred())
		Expect(output).To(ContainSubstring("Bosh::Clouds::CpiError"), "the response to an empty request")
	})

	It("has the image of bosh-node next to the CPI, for both architectures, in the repository of published images", func() {
		images, err := layout.ImageIndexFromPath(filepath.Join(installed, "node-image"))
		Expect(err).NotTo(HaveOccurred())
		manifest, err := images.IndexManifest()
		Expect(err).NotTo(HaveOccurred())
		Expect(manifest.Manifests).To(HaveLen(1))
		reference = manifest.Manifests[0].Annotations[stemcell.ImageNameAnnotation]
		Expect(name.NewDigest(reference)).To(HaveField("Context().Name()", "registry.example.org/bosh/bosh-node"))
		image, err := images.ImageIndex(manifest.Manifests[0].Digest)
		Expect(err).NotTo(HaveOccurred())
		Expect(validate.Index(image)).To(Succeed())
		Expect(image.IndexManifest()).To(HaveField("Manifests", ConsistOf(
			HaveField("Platform.String()", "linux/amd64"), HaveField("Platform.String()", "linux/arm64"))))
	})

	It("has the image that is published from another directory", func() {
		published := filepath.Join(GinkgoT().TempDir(), "image")
		Expect(strings.TrimSpace(c.mustRun("scripts/build-node-image", "registry.example.org/bosh/bosh-node:1.2.3", published))).To(HaveSuffix(reference))
	})

	It("is not installed on a host for which it has no program", func() {
		Expect(os.Remove(filepath.Join(sources, "kubernetes_cpi", "cpi-linux-amd64"))).To(Succeed())
		output, err := install()
		Expect(err).To(HaveOccurred())
		Expect(output).To(ContainSubstring("the release contains no program for linux-amd64; create it with PLATFORMS=linux-amd64"))
	})
})
