package stemcell_test

import (
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

var _ = Describe("A light stemcell", func() {
	var (
		registry *stemcells.Registry
		digest   string
	)
	BeforeEach(func() {
		registry = startRegistry(false)
		image, err := random.Image(1024, 1)
		Expect(err).NotTo(HaveOccurred())
		tag, err := name.NewTag(registry.Host() + "/ubuntu-jammy-stemcell:1.10")
		Expect(err).NotTo(HaveOccurred())
		Expect(remote.Write(tag, image)).To(Succeed())
		hash, err := image.Digest()
		Expect(err).NotTo(HaveOccurred())
		digest = hash.String()
	})

	It("is pinned to the current digest of its tag", func(ctx SpecContext) {
		store, _ := newStore(registry)
		cid, err := store.Pin(ctx, stemcell.Properties{Image: registry.Host() + "/ubuntu-jammy-stemcell:1.10"})
		Expect(err).NotTo(HaveOccurred())
		Expect(cid).To(Equal(registry.Host() + "/ubuntu-jammy-stemcell@" + digest))
		Expect(stemcell.IsHeavy(cid)).To(BeFalse())
		Expect(store.Image(cid)).To(Equal(cid))
	})

	It("is pinned to its digest property", func(ctx SpecContext) {
		store, _ := newStore(registry)
		cid, err := store.Pin(ctx, stemcell.Properties{ImageReference: registry.Host() + "/ubuntu-jammy-stemcell:other", Digest: digest})
		Expect(err).NotTo(HaveOccurred())
		Expect(cid).To(Equal(registry.Host() + "/ubuntu-jammy-stemcell@" + digest))
	})

	It("is rejected if its image does not exist", func(ctx SpecContext) {
		store, _ := newStore(registry)
		_, err := store.Pin(ctx, stemcell.Properties{Image: registry.Host() + "/ubuntu-jammy-stemcell:2"})
		Expect(err).To(MatchError(stemcell.ErrNotFound))
		Expect(err).To(MatchError(ContainSubstring("ubuntu-jammy-stemcell:2")))
		Expect(err).To(MatchError(ContainSubstring("push the image there")))
	})

	It("is accepted without a digest, with a warning, if the registry denies the lookup", func(ctx SpecContext) {
		store, log := newStore(registry)
		registry.SetFault(stemcells.RejectMethod(http.MethodHead, http.StatusForbidden, "DENIED"))
		reference := registry.Host() + "/ubuntu-jammy-stemcell:1.10"
		Expect(store.Pin(ctx, stemcell.Properties{Image: reference})).To(Equal(reference))
		Expect(log.String()).To(ContainSubstring("level=WARN"))
	})

	It("is accepted unchanged, with a warning, if the registry is unreachable", func(ctx SpecContext) {
		store, log := newStore(registry)
		reference := registry.Host() + "/ubuntu-jammy-stemcell@" + digest
		registry.Close()
		Expect(store.Pin(ctx, stemcell.Properties{Image: reference})).To(Equal(reference))
		Expect(log.String()).To(And(ContainSubstring("level=WARN"), ContainSubstring("cannot check that the image exists")))
	})

	It("is looked up in the mirror, and keeps its original name in the CID", func(ctx SpecContext) {
		store, _ := newStore(registry)
		store.RegistryMirrors = map[string]string{"ghcr.io/cloudfoundry": registry.Host()}
		cid, err := store.Pin(ctx, stemcell.Properties{Image: "ghcr.io/cloudfoundry/ubuntu-jammy-stemcell:1.10"})
		Expect(err).NotTo(HaveOccurred())
		Expect(cid).To(Equal("ghcr.io/cloudfoundry/ubuntu-jammy-stemcell@" + digest))
		Expect(store.Image(cid)).To(Equal(registry.Host() + "/ubuntu-jammy-stemcell@" + digest))
	})

	It("sends the configured credentials only to the configured registry", func(ctx SpecContext) {
		store, _ := newStore(registry)
		store.Registry.Username, store.Registry.Password = "bosh", "sesame"
		registry.Username, registry.Password = "bosh", "sesame"
		cid, err := store.Pin(ctx, stemcell.Properties{Image: registry.Host() + "/ubuntu-jammy-stemcell:1.10"})
		Expect(err).NotTo(HaveOccurred())
		Expect(cid).To(ContainSubstring("@"))

		other := startRegistry(false)
		other.SetFault(func(_ http.ResponseWriter, request *http.Request) bool {
			Expect(request.Header).NotTo(HaveKey("Authorization"))
			return false
		})
		_, err = store.Pin(ctx, stemcell.Properties{Image: other.Host() + "/ubuntu-jammy-stemcell:1.10"})
		Expect(err).To(MatchError(stemcell.ErrNotFound))
	})

	DescribeTable("is rejected with an error that names the invalid property", func(
		ctx SpecContext, properties stemcell.Properties, message string,
	) {
		store, _ := newStore(registry)
		previous := registry.Requests()
		_, err := store.Pin(ctx, properties)
		Expect(err).To(MatchError(stemcell.ErrInvalid))
		Expect(err).To(MatchError(ContainSubstring(message)))
		Expect(registry.Requests()).To(Equal(previous))
	},
		Entry("image", stemcell.Properties{Image: "Not An Image"},
			`cloud_properties.image "Not An Image" is not a valid image reference`),
		Entry("image_reference", stemcell.Properties{ImageReference: "a b"}, `cloud_properties.image_reference "a b"`),
		Entry("digest", stemcell.Properties{ImageReference: "ubuntu", Digest: "sha256:1"},
			`cloud_properties.digest "sha256:1" is not a valid digest`),
		Entry("digest that differs from the reference",
			stemcell.Properties{ImageReference: "ubuntu@" + digestOf(nil), Digest: digestOf([]byte("x"))},
			"differs from the digest of cloud_properties.image_reference"),
	)
})

var _ = Describe("Options.Image", func() {
	digest := digestOf(nil)
	options := stemcell.Options{
		RegistryMirrors: map[string]string{
			"docker.io": "mirror.test/hub", "ghcr.io": "mirror.test/ghcr", "ghcr.io/cloudfoundry": "mirror.test/cf",
		},
		Registry: stemcell.Registry{Repository: "push.test/bosh/stemcells", PullRepository: "pull.test:5000/stemcells"},
	}
	DescribeTable("returns the reference that nodes use to pull the image", func(cid, image string) {
		Expect(options.Validate()).To(Succeed())
		Expect(options.Image(cid)).To(Equal(image))
	},
		Entry("heavy, with the pull repository", "heavy://push.test/bosh/stemcells@"+digest, "pull.test:5000/stemcells@"+digest),
		Entry("heavy, with an architecture", "heavy://push.test/bosh/stemcells@"+digest+"#amd64", "pull.test:5000/stemcells@"+digest),
		Entry("light, with architectures", "quay.io/a/b@"+digest+"#amd64,arm64", "quay.io/a/b@"+digest),
		Entry("heavy, in a previously configured repository", "heavy://old.test/stemcells@"+digest, "old.test/stemcells@"+digest),
		Entry("light", "quay.io/a/b@"+digest, "quay.io/a/b@"+digest),
		Entry("light, with a tag", "quay.io/a/b:1", "quay.io/a/b:1"),
		Entry("light, with the longest matching mirror prefix", "ghcr.io/cloudfoundry/b@"+digest, "mirror.test/cf/b@"+digest),
		Entry("light, with a shorter mirror prefix", "ghcr.io/cloudfoundry-2/b:1", "mirror.test/ghcr/cloudfoundry-2/b:1"),
		Entry("light, on Docker Hub", "ubuntu:22.04", "mirror.test/hub/library/ubuntu:22.04"),
	)
	DescribeTable("returns an error for an invalid CID", func(cid string) {
		_, err := options.Image(cid)
		Expect(err).To(MatchError(ContainSubstring("upload the stemcell again")))
	},
		Entry("of another CPI", "sc-1234 5678"),
		Entry("heavy, without a digest", "heavy://push.test/bosh/stemcells:1"),
		Entry("empty", ""),
	)
})

var _ = Describe("The configuration", func() {
	validOptions := func() stemcell.Options {
		return stemcell.Options{Registry: stemcell.Registry{Repository: "push.test/bosh/stemcells"}}
	}
	DescribeTable("is rejected with an error that names the invalid property", func(change func(*stemcell.Options), message string) {
		options := validOptions()
		Expect(options.Validate()).To(Succeed())
		change(&options)
		Expect(options.Validate()).To(MatchError(ContainSubstring(message)))
	},
		Entry("repository with a scheme",
			func(o *stemcell.Options) { o.Registry.Repository = "https://push.test/a" }, "kubernetes.stemcell.registry.repository"),
		Entry("repository with a tag",
			func(o *stemcell.Options) { o.Registry.Repository = "push.test/a:1" }, "kubernetes.stemcell.registry.repository"),
		Entry("repository without a registry",
			func(o *stemcell.Options) { o.Registry.Repository = "bosh/stemcells" }, "kubernetes.stemcell.registry.repository"),
		Entry("registry without a repository",
			func(o *stemcell.Options) { o.Registry.Repository = "push.test" }, "kubernetes.stemcell.registry.repository"),
		Entry("invalid pull repository",
			func(o *stemcell.Options) { o.Registry.PullRepository = "x" }, "kubernetes.stemcell.registry.pull_repository"),
		Entry("missing repository",
			func(o *stemcell.Options) { o.Registry = stemcell.Registry{Username: "a"} }, "kubernetes.stemcell.registry.repository is missing"),
		Entry("password without a username",
			func(o *stemcell.Options) { o.Registry.Password = "a" },
			"kubernetes.stemcell.registry.username and kubernetes.stemcell.registry.password must be set together"),
		Entry("token and password",
			func(o *stemcell.Options) { o.Registry.Username, o.Registry.Password, o.Registry.Token = "a", "b", "c" }, "kubernetes.stemcell.registry.token"),
		Entry("CA that is not PEM",
			func(o *stemcell.Options) { o.Registry.CA = "/etc/ca.crt" }, "kubernetes.stemcell.registry.ca contains no certificate"),
		Entry("invalid name of the pull Secret",
			func(o *stemcell.Options) { o.Registry.PullSecret.Name = "A_b" }, "kubernetes.stemcell.registry.pull_secret.name"),
		Entry("pull Secret without a name",
			func(o *stemcell.Options) { o.Registry.PullSecret.Username = "a" }, "kubernetes.stemcell.registry.pull_secret.name is missing"),
		Entry("pull Secret without credentials",
			func(o *stemcell.Options) { o.Registry.Token, o.Registry.PullSecret.Name = "t", "a" }, "nodes cannot use a token"),
		Entry("mirror with a scheme",
			func(o *stemcell.Options) { o.RegistryMirrors = map[string]string{"ghcr.io": "https://m.test"} }, "kubernetes.stemcell.registry_mirrors"),
		Entry("mirrored prefix without a registry",
			func(o *stemcell.Options) { o.RegistryMirrors = map[string]string{"library": "m.test"} }, "kubernetes.stemcell.registry_mirrors"),
	)

	It("is printed without its secrets", func() {
		options := validOptions()
		options.Registry.Username, options.Registry.Password = "bosh", "sesame"
		for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
			Expect(fmt.Sprintf(format, options)).NotTo(ContainSubstring("sesame"))
		}
	})

	It("provides the nodes' credentials only for images in the configured registry", func() {
		options := validOptions()
		options.Registry.Username, options.Registry.Password = "bosh", "sesame"
		options.Registry.PullRepository = "pull.test/harness/stemcells"
		options.Registry.PullSecret = stemcell.PullSecret{Name: "stemcells", Username: "nodes", Password: "read"}
		Expect(options.Validate()).To(Succeed())
		name, content, err := options.PullSecret("pull.test/stemcells@" + digestOf(nil))
		Expect(err).NotTo(HaveOccurred())
		Expect(name).To(Equal("stemcells"))
		Expect(content).To(MatchJSON(`{"auths": {"pull.test": {"username": "nodes", "password": "read", "auth": "bm9kZXM6cmVhZA=="}}}`))
		options.Registry.PullRepository = "docker.io/org/stemcells"
		name, _, err = options.PullSecret("index.docker.io/org/stemcells@" + digestOf(nil))
		Expect(err).NotTo(HaveOccurred())
		Expect(name).To(Equal("stemcells"), "two names of one registry")
		name, _, err = options.PullSecret("elsewhere.test/stemcells@" + digestOf(nil))
		Expect(err).NotTo(HaveOccurred())
		Expect(name).To(BeEmpty())
	})
})
