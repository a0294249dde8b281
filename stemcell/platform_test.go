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
	"bosh-kubernetes-cpi/test/harness/stemcells"
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
	// imageFor returns an image for the platform.
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
	// pin returns the CID of the stemcell, and the log of the store.
	pin := func(ctx SpecContext) (cid, output string) {
		GinkgoHelper()
		store, log := newStore(registry)
		cid, err := store.Pin(ctx, stemcell.Properties{Image: tag.Name()})
		Expect(err).NotTo(HaveOccurred())
		Expect(store.Image(cid)).To(MatchRegexp(`^` + tag.Context().Name() + `@sha256:[0-9a-f]{64}$`))
		return cid, log.String()
	}

	It("are read from the image's configuration", func(ctx SpecContext) {
		Expect(remote.Write(tag, imageFor("linux", "arm64"))).To(Succeed())
		cid, _ := pin(ctx)
		Expect(stemcell.Architectures(cid)).To(Equal([]string{"arm64"}))
	})

	It("are from all Linux images in an index", func(ctx SpecContext) {
		index := mutate.AppendManifests(empty.Index)
		for _, platform := range []v1.Platform{
			{OS: "linux", Architecture: "arm64", Variant: "v8"}, {OS: "linux", Architecture: "amd64"}, {OS: "windows", Architecture: "386"},
			{OS: "unknown", Architecture: "unknown"}, // an attestation
			{OS: "linux", Architecture: "not valid"},
		} {
			image := imageFor(platform.OS, platform.Architecture)
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
		}
		Expect(remote.WriteIndex(tag, index)).To(Succeed())
		cid, _ := pin(ctx)
		Expect(stemcell.Architectures(cid)).To(Equal([]string{"amd64", "arm64"}))
	})

	It("are unknown for an image without a platform", func(ctx SpecContext) {
		Expect(remote.Write(tag, imageFor("", ""))).To(Succeed())
		cid, _ := pin(ctx)
		Expect(stemcell.Architectures(cid)).To(BeEmpty())
	})

	It("are unknown, with a warning, if the registry does not report them", func(ctx SpecContext) {
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
		Expect(output).To(And(ContainSubstring("level=WARN"), ContainSubstring("does not report the architectures")))
	})
})

var _ = Describe("A CID without architectures", func() {
	It("has unknown architectures", func() {
		Expect(stemcell.Architectures("heavy://registry.test/stemcells@" + digestOf(nil))).To(BeEmpty())
	})

	It("refers to the same image as one with architectures", func() {
		cid := "heavy://registry.test/stemcells@" + digestOf(nil)
		Expect(stemcell.SameImage(cid, cid+"#amd64")).To(BeTrue())
		Expect(stemcell.SameImage(cid+"#amd64", "heavy://registry.test/stemcells@"+digestOf([]byte("other"))+"#amd64")).To(BeFalse())
	})
})
