package stemcell_test

import (
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/stemcells"
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
		made, err := image.Digest()
		Expect(err).NotTo(HaveOccurred())
		digest = made.String()
	})

	It("is pinned by the digest that its tag has now", func(ctx SpecContext) {
		store, _ := newStore(registry)
		cid, err := store.Pin(ctx, stemcell.Properties{Image: registry.Host() + "/ubuntu-jammy-stemcell:1.10"})
		Expect(err).NotTo(HaveOccurred())
		Expect(cid).To(Equal(registry.Host() + "/ubuntu-jammy-stemcell@" + digest))
		Expect(stemcell.IsHeavy(cid)).To(BeFalse())
		Expect(store.Image(cid)).To(Equal(cid))
	})

	It("is taken by its digest when it gives one", func(ctx SpecContext) {
		store, _ := newStore(registry)
		cid, err := store.Pin(ctx, stemcell.Properties{ImageReference: registry.Host() + "/ubuntu-jammy-stemcell:other", Digest: digest})
		Expect(err).NotTo(HaveOccurred())
		Expect(cid).To(Equal(registry.Host() + "/ubuntu-jammy-stemcell@" + digest))
	})

	It("is an error at upload when its image does not exist", func(ctx SpecContext) {
		store, _ := newStore(registry)
		_, err := store.Pin(ctx, stemcell.Properties{Image: registry.Host() + "/ubuntu-jammy-stemcell:2"})
		Expect(err).To(MatchError(stemcell.ErrNotFound))
		Expect(err).To(MatchError(ContainSubstring("ubuntu-jammy-stemcell:2")))
		Expect(err).To(MatchError(ContainSubstring("push the image there")))
	})

	It("is taken as it is, with a warning, when the registry cannot be asked", func(ctx SpecContext) {
		store, log := newStore(registry)
		registry.SetFault(stemcells.RejectMethod(http.MethodHead, http.StatusForbidden, "DENIED"))
		reference := registry.Host() + "/ubuntu-jammy-stemcell:1.10"
		Expect(store.Pin(ctx, stemcell.Properties{Image: reference})).To(Equal(reference))
		Expect(log.String()).To(ContainSubstring("level=WARN"))
	})

	It("is taken as it is, with a warning, when the registry does not answer at all", func(ctx SpecContext) {
		store, log := newStore(registry)
		reference := registry.Host() + "/ubuntu-jammy-stemcell@" + digest
		registry.Close()
		Expect(store.Pin(ctx, stemcell.Properties{Image: reference})).To(Equal(reference))
		Expect(log.String()).To(And(ContainSubstring("level=WARN"), ContainSubstring("could not be asked")))
	})

	It("comes from the mirror, and keeps its own name in the CID", func(ctx SpecContext) {
		store, _ := newStore(registry)
		store.RegistryMirrors = map[string]string{"ghcr.io/cloudfoundry": registry.Host()}
		cid, err := store.Pin(ctx, stemcell.Properties{Image: "ghcr.io/cloudfoundry/ubuntu-jammy-stemcell:1.10"})
		Expect(err).NotTo(HaveOccurred())
		Expect(cid).To(Equal("ghcr.io/cloudfoundry/ubuntu-jammy-stemcell@" + digest))
		Expect(store.Image(cid)).To(Equal(registry.Host() + "/ubuntu-jammy-stemcell@" + digest))
	})

	It("is asked for with the registry's credentials, and those go to no other registry", func(ctx SpecContext) {
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

	DescribeTable("is refused with the name of the property at fault", func(ctx SpecContext, properties stemcell.Properties, message string) {
		store, _ := newStore(registry)
		previous := registry.Requests()
		_, err := store.Pin(ctx, properties)
		Expect(err).To(MatchError(stemcell.ErrInvalid))
		Expect(err).To(MatchError(ContainSubstring(message)))
		Expect(registry.Requests()).To(Equal(previous))
	},
		Entry("image", stemcell.Properties{Image: "Not An Image"}, `cloud_properties.image "Not An Image" is not an image reference`),
		Entry("image_reference", stemcell.Properties{ImageReference: "a b"}, `cloud_properties.image_reference "a b"`),
		Entry("digest", stemcell.Properties{ImageReference: "ubuntu", Digest: "sha256:1"}, `cloud_properties.digest "sha256:1" is not a digest`),
		Entry("contradiction", stemcell.Properties{ImageReference: "ubuntu@" + digestOf(nil), Digest: digestOf([]byte("x"))}, "contradicts cloud_properties.image_reference"),
	)
})

var _ = Describe("The image of a CID", func() {
	digest := digestOf(nil)
	options := stemcell.Options{
		RegistryMirrors: map[string]string{
			"docker.io": "mirror.test/hub", "ghcr.io": "mirror.test/ghcr", "ghcr.io/cloudfoundry": "mirror.test/cf",
		},
		Registry: stemcell.Registry{Repository: "push.test/bosh/stemcells", PullRepository: "pull.test:5000/stemcells"},
	}
	DescribeTable("is what the nodes pull", func(cid, image string) {
		Expect(options.Validate()).To(Succeed())
		Expect(options.Image(cid)).To(Equal(image))
	},
		Entry("heavy, by the nodes' name", "heavy://push.test/bosh/stemcells@"+digest, "pull.test:5000/stemcells@"+digest),
		Entry("heavy, for some nodes", "heavy://push.test/bosh/stemcells@"+digest+"#amd64", "pull.test:5000/stemcells@"+digest),
		Entry("light, for some nodes", "quay.io/a/b@"+digest+"#amd64,arm64", "quay.io/a/b@"+digest),
		Entry("heavy, of a repository configured formerly", "heavy://old.test/stemcells@"+digest, "old.test/stemcells@"+digest),
		Entry("light", "quay.io/a/b@"+digest, "quay.io/a/b@"+digest),
		Entry("light with a tag", "quay.io/a/b:1", "quay.io/a/b:1"),
		Entry("light by the longest mirror", "ghcr.io/cloudfoundry/b@"+digest, "mirror.test/cf/b@"+digest),
		Entry("light by a shorter mirror", "ghcr.io/cloudfoundry-2/b:1", "mirror.test/ghcr/cloudfoundry-2/b:1"),
		Entry("light of Docker Hub", "ubuntu:22.04", "mirror.test/hub/library/ubuntu:22.04"),
	)
	DescribeTable("is refused when it is none", func(cid string) {
		_, err := options.Image(cid)
		Expect(err).To(MatchError(ContainSubstring("upload the stemcell again")))
	},
		Entry("another CPI's", "sc-1234 5678"),
		Entry("heavy without digest", "heavy://push.test/bosh/stemcells:1"),
		Entry("nothing", ""),
	)
})

var _ = Describe("The configuration", func() {
	good := func() stemcell.Options {
		return stemcell.Options{Registry: stemcell.Registry{Repository: "push.test/bosh/stemcells"}}
	}
	DescribeTable("is refused with the name of the property", func(change func(*stemcell.Options), message string) {
		options := good()
		Expect(options.Validate()).To(Succeed())
		change(&options)
		Expect(options.Validate()).To(MatchError(ContainSubstring(message)))
	},
		Entry("scheme", func(o *stemcell.Options) { o.Registry.Repository = "https://push.test/a" }, "stemcell.registry.repository"),
		Entry("tag", func(o *stemcell.Options) { o.Registry.Repository = "push.test/a:1" }, "stemcell.registry.repository"),
		Entry("no registry in it", func(o *stemcell.Options) { o.Registry.Repository = "bosh/stemcells" }, "stemcell.registry.repository"),
		Entry("no repository in it", func(o *stemcell.Options) { o.Registry.Repository = "push.test" }, "stemcell.registry.repository"),
		Entry("pull repository", func(o *stemcell.Options) { o.Registry.PullRepository = "x" }, "stemcell.registry.pull_repository"),
		Entry("no repository", func(o *stemcell.Options) { o.Registry = stemcell.Registry{Username: "a"} }, "stemcell.registry.repository is missing"),
		Entry("password alone", func(o *stemcell.Options) { o.Registry.Password = "a" }, "stemcell.registry.username and stemcell.registry.password belong together"),
		Entry("token and password", func(o *stemcell.Options) { o.Registry.Username, o.Registry.Password, o.Registry.Token = "a", "b", "c" }, "stemcell.registry.token"),
		Entry("no PEM", func(o *stemcell.Options) { o.Registry.CA = "/etc/ca.crt" }, "stemcell.registry.ca holds no certificate"),
		Entry("secret's name", func(o *stemcell.Options) { o.Registry.PullSecret.Name = "A_b" }, "stemcell.registry.pull_secret.name"),
		Entry("secret without a name", func(o *stemcell.Options) { o.Registry.PullSecret.Username = "a" }, "stemcell.registry.pull_secret.name is missing"),
		Entry("secret without credentials", func(o *stemcell.Options) { o.Registry.Token, o.Registry.PullSecret.Name = "t", "a" }, "nodes cannot use a token"),
		Entry("mirror", func(o *stemcell.Options) { o.RegistryMirrors = map[string]string{"ghcr.io": "https://m.test"} }, "stemcell.registry_mirrors"),
		Entry("mirrored", func(o *stemcell.Options) { o.RegistryMirrors = map[string]string{"library": "m.test"} }, "stemcell.registry_mirrors"),
	)

	It("keeps its secrets out of what is printed", func() {
		options := good()
		options.Registry.Username, options.Registry.Password = "bosh", "sesame"
		Expect(strings.Join([]string{formatted("%v", options), formatted("%+v", options), formatted("%#v", options), formatted("%s", options)}, " ")).
			NotTo(ContainSubstring("sesame"))
	})

	It("gives the nodes credentials for images of that registry alone", func() {
		options := good()
		options.Registry.Username, options.Registry.Password = "bosh", "sesame"
		options.Registry.PullRepository = "pull.test/stemcells"
		options.Registry.PullSecret = stemcell.PullSecret{Name: "stemcells", Username: "nodes", Password: "read"}
		Expect(options.Validate()).To(Succeed())
		name, content, err := options.PullSecret("pull.test/stemcells@" + digestOf(nil))
		Expect(err).NotTo(HaveOccurred())
		Expect(name).To(Equal("stemcells"))
		Expect(content).To(MatchJSON(`{"auths": {"pull.test": {"username": "nodes", "password": "read", "auth": "bm9kZXM6cmVhZA=="}}}`))
		name, _, err = options.PullSecret("elsewhere.test/stemcells@" + digestOf(nil))
		Expect(err).NotTo(HaveOccurred())
		Expect(name).To(BeEmpty())
	})
})
