package stemcell_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

var _ = Describe("The image of bosh-node", func() {
	const published = "ghcr.test/owner/bosh-node"
	var (
		image  stemcell.NodeImage
		digest string
	)
	BeforeEach(func() {
		image = stemcell.NodeImage{}
		image.Layout, digest = stemcells.NodeImage(GinkgoT().TempDir(), published)
	})
	// useRegistry configures a registry for heavy stemcells.
	useRegistry := func() *stemcells.Registry {
		registry := startRegistry(false)
		image.Store, _ = newStore(registry)
		return registry
	}
	// expectPushed expects that the registry serves the whole image, and under a tag.
	expectPushed := func(repository string) {
		GinkgoHelper()
		reference, err := name.NewDigest(repository+"@"+digest, name.Insecure)
		Expect(err).NotTo(HaveOccurred())
		index, err := remote.Index(reference)
		Expect(err).NotTo(HaveOccurred())
		Expect(validate.Index(index)).To(Succeed())
		Expect(remote.List(reference.Context())).To(ConsistOf("bosh-node-" + strings.TrimPrefix(digest, "sha256:")[:12]))
	}

	It("is in the directory node-image next to the program's directory", func() {
		dir := filepath.Dir(image.Layout)
		Expect(stemcell.NodeImageLayout(filepath.Join(dir, "bin", "cpi"))).To(Equal(image.Layout))
		Expect(os.RemoveAll(image.Layout)).To(Succeed())
		Expect(stemcell.NodeImageLayout(filepath.Join(dir, "bin", "cpi"))).To(BeEmpty())
	})

	Describe("has the reference", func() {
		It("of the published image by default", func() {
			Expect(image.Reference()).To(Equal(published + "@" + digest))
		})

		It("of a mirror", func() {
			image.RegistryMirrors = map[string]string{"ghcr.test": "mirror.test/ghcr"}
			Expect(image.Reference()).To(Equal("mirror.test/ghcr/owner/bosh-node@" + digest))
		})

		It("in the registry for heavy stemcells, by its name on nodes", func() {
			image.Registry = stemcell.Registry{Repository: "push.test/bosh", PullRepository: "pull.test/bosh"}
			image.RegistryMirrors = map[string]string{"ghcr.test": "mirror.test"}
			Expect(image.Reference()).To(Equal("pull.test/bosh@" + digest))
		})

		It("in the configuration", func() {
			image.Registry.Repository, image.Configured = "push.test/bosh", "own.test/bosh-node@"+digest
			Expect(image.Validate()).To(Succeed())
			Expect(image.Reference()).To(Equal(image.Configured))
			image.Layout = ""
			Expect(image.Reference()).To(Equal(image.Configured))
		})
	})

	It("has no reference without the directory and the setting", func() {
		image.Layout = ""
		_, err := image.Reference()
		Expect(err).To(MatchError(stemcell.ErrNoNodeImage))
		Expect(err).To(MatchError(ContainSubstring("set kubernetes.node_image")))
	})

	It("has no reference if the directory is damaged", func() {
		Expect(os.WriteFile(filepath.Join(image.Layout, "index.json"), []byte("{"), 0o600)).To(Succeed())
		_, err := image.Reference()
		Expect(err).To(MatchError(ContainSubstring("read the image of bosh-node in " + image.Layout)))
		Expect(os.WriteFile(filepath.Join(image.Layout, "index.json"), []byte("{}"), 0o600)).To(Succeed())
		_, err = image.Reference()
		Expect(err).To(MatchError(ContainSubstring("it has 0 images instead of one")))
	})

	It("must be configured with a digest", func() {
		image.Configured = "own.test/bosh-node:1"
		Expect(image.Validate()).To(MatchError(ContainSubstring("requires a repository and a digest")))
	})

	It("must not be configured with the digest of another version", func() {
		image.Configured = "own.test/bosh-node@sha256:" + strings.Repeat("0", 64)
		Expect(image.Validate()).To(MatchError(HaveSuffix("set kubernetes.node_image to own.test/bosh-node@" + digest)))
		image.Layout = ""
		Expect(image.Validate()).To(Succeed())
	})

	It("is pushed once to the registry for heavy stemcells", func(ctx SpecContext) {
		registry := useRegistry()
		Expect(image.Ensure(ctx)).To(Succeed())
		expectPushed(registry.Host() + "/bosh/stemcells")
		uploads := registry.UploadCounts()
		Expect(image.Ensure(ctx)).To(Succeed())
		Expect(registry.UploadCounts()).To(And(Equal(uploads), HaveEach(1)))
	})

	It("needs one request if it is in the registry", func(ctx SpecContext) {
		registry := useRegistry()
		Expect(image.Ensure(ctx)).To(Succeed())
		requests := len(registry.Requests())
		Expect(image.Ensure(ctx)).To(Succeed())
		Expect(registry.Requests()[requests:]).To(ConsistOf("GET /v2/", "HEAD /v2/bosh/stemcells/manifests/"+digest))
	})

	It("is not pushed if the registry does not answer", func(ctx SpecContext) {
		registry := useRegistry()
		registry.SetFault(stemcells.RejectMethod(http.MethodHead, http.StatusForbidden, "DENIED"))
		Expect(image.Ensure(ctx)).To(MatchError(stemcell.ErrDenied))
		Expect(registry.UploadCounts()).To(BeEmpty())
	})

	DescribeTable("sends no request if the CPI does not push it, because", func(ctx SpecContext, change func()) {
		registry := useRegistry()
		change()
		Expect(image.Ensure(ctx)).To(Succeed())
		Expect(registry.Requests()).To(BeEmpty())
	},
		Entry("it is configured", func() { image.Configured = "own.test/bosh-node@" + digest }),
		Entry("no registry is configured", func() { image.Registry = stemcell.Registry{} }),
		Entry("there is no image", func() { image.Layout = "" }),
	)

	It("is pushed on request to the repository from which nodes pull it", func(ctx SpecContext) {
		registry := startRegistry(false)
		image.Store, _ = newStoreWith(stemcell.Registry{})
		image.RegistryMirrors = map[string]string{"ghcr.test/owner": registry.Host() + "/mirror"}
		Expect(image.Push(ctx)).To(Equal(registry.Host() + "/mirror/bosh-node@" + digest))
		expectPushed(registry.Host() + "/mirror/bosh-node")
	})

	It("is pushed on request with the credentials of the registry for heavy stemcells", func(ctx SpecContext) {
		registry := startRegistry(false)
		registry.Username, registry.Password = "bosh", "sesame"
		image.Store, _ = newStore(registry)
		image.Configured = registry.Host() + "/other/bosh-node@" + digest
		Expect(image.Push(ctx)).To(Equal(image.Configured))
	})

	It("reports a failed push with its remedy", func(ctx SpecContext) {
		registry := useRegistry()
		registry.SetFault(stemcells.RejectMethod(http.MethodPost, http.StatusForbidden, "DENIED"))
		Expect(image.Ensure(ctx)).To(MatchError(And(ContainSubstring("push the image "+registry.Host()), ContainSubstring("denied access"))))
	})
})
