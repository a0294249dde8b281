package stemcell_test

import (
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/stemcells"
)

var _ = Describe("The architectures of a light stemcell", func() {
	var (
		registry *stemcells.Registry
		tag      name.Tag
	)
	BeforeEach(func() {
		registry = startRegistry(false)
		var err error
		tag, err = name.NewTag(registry.Host() + "/stemcell:1")
		Expect(err).NotTo(HaveOccurred())
	})
	// imageFor is an image that says that it is for this platform.
	imageFor := func(os, architecture string) v1.Image {
		GinkgoHelper()
		image, err := random.Image(1024, 1)
		Expect(err).NotTo(HaveOccurred())
		config, err := image.ConfigFile()
		Expect(err).NotTo(HaveOccurred())
		config.OS, config.Architecture = os, architecture
		image, err = mutate.ConfigFile(image, config)
		Expect(err).NotTo(HaveOccurred())
		return image
	}
	// pinned is the CID of the stemcell, and what the CPI's log has of it.
	pin := func(ctx SpecContext) (cid, output string) {
		GinkgoHelper()
		store, log := newStore(registry)
		cid, err := store.Pin(ctx, stemcell.Properties{Image: tag.Name()})
		Expect(err).NotTo(HaveOccurred())
		Expect(store.Image(cid)).To(MatchRegexp(`^` + tag.Context().Name() + `@sha256:[0-9a-f]{64}$`))
		return cid, log.String()
	}

	It("are what its image says", func(ctx SpecContext) {
		Expect(remote.Write(tag, imageFor("linux", "arm64"))).To(Succeed())
		cid, _ := pin(ctx)
		Expect(stemcell.Architectures(cid)).To(Equal([]string{"arm64"}))
	})

	It("are those of all its images for Linux", func(ctx SpecContext) {
		index := mutate.AppendManifests(empty.Index)
		for _, platform := range []v1.Platform{
			{OS: "linux", Architecture: "arm64", Variant: "v8"}, {OS: "linux", Architecture: "amd64"}, {OS: "windows", Architecture: "386"},
			{OS: "unknown", Architecture: "unknown"}, // an attestation
			{OS: "linux", Architecture: "no node's"},
		} {
			image := imageFor(platform.OS, platform.Architecture)
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
		}
		Expect(remote.WriteIndex(tag, index)).To(Succeed())
		cid, _ := pin(ctx)
		Expect(stemcell.Architectures(cid)).To(Equal([]string{"amd64", "arm64"}))
	})

	It("are not known of an image that names none", func(ctx SpecContext) {
		Expect(remote.Write(tag, imageFor("", ""))).To(Succeed())
		cid, _ := pin(ctx)
		Expect(stemcell.Architectures(cid)).To(BeEmpty())
	})

	It("are not known, with a warning, when the registry does not say", func(ctx SpecContext) {
		Expect(remote.Write(tag, imageFor("linux", "arm64"))).To(Succeed())
		registry.SetFault(func(w http.ResponseWriter, request *http.Request) bool {
			if request.Method != http.MethodGet || !strings.Contains(request.URL.Path, "/manifests/") {
				return false
			}
			stemcells.WriteError(w, http.StatusTooManyRequests, "TOOMANYREQUESTS", "come back in six hours")
			return true
		})
		cid, output := pin(ctx)
		Expect(stemcell.Architectures(cid)).To(BeEmpty())
		Expect(output).To(And(ContainSubstring("level=WARN"), ContainSubstring("does not say which architectures")))
	})
})

var _ = Describe("A CID from before architectures were noted", func() {
	It("is of an image whose architectures are not known", func() {
		Expect(stemcell.Architectures("heavy://registry.test/stemcells@" + digestOf(nil))).To(BeEmpty())
	})

	It("is of the same image as one with them", func() {
		cid := "heavy://registry.test/stemcells@" + digestOf(nil)
		Expect(stemcell.SameImage(cid, cid+"#amd64")).To(BeTrue())
		Expect(stemcell.SameImage(cid+"#amd64", "heavy://registry.test/stemcells@"+digestOf([]byte("another"))+"#amd64")).To(BeFalse())
	})
})
