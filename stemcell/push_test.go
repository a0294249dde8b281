package stemcell_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

// parseHeavyCID returns the image reference in the CID of a heavy stemcell.
func parseHeavyCID(cid string) name.Reference {
	pushed, _, _ := strings.Cut(strings.TrimPrefix(cid, "heavy://"), "#")
	reference, err := name.ParseReference(pushed, name.Insecure)
	Expect(err).NotTo(HaveOccurred())
	return reference
}

// pullImage pulls and validates the image of a heavy stemcell.
func pullImage(cid string) v1.Image {
	image, err := remote.Image(parseHeavyCID(cid))
	Expect(err).NotTo(HaveOccurred())
	Expect(validate.Image(image)).To(Succeed())
	return image
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

var _ = Describe("Pushing a heavy stemcell", func() {
	var registry *stemcells.Registry
	BeforeEach(func() { registry = startRegistry(false) })

	It("pushes an image with the unchanged file as its layer", func(ctx SpecContext) {
		store, log := newStore(registry)
		file := stemcells.Jammy.Image()
		cid, err := store.Push(ctx, writeTempFile(file), jammy, map[string]string{"owner": "director"})
		Expect(err).NotTo(HaveOccurred())
		Expect(cid).To(MatchRegexp(`^heavy://` + registry.Host() + `/bosh/stemcells@sha256:[0-9a-f]{64}#amd64$`))

		image := pullImage(cid)
		layers, err := image.Layers()
		Expect(err).NotTo(HaveOccurred())
		Expect(layers).To(HaveLen(1))
		Expect(layers[0].Digest()).To(HaveField("String()", digestOf(file)))
		config, err := image.ConfigFile()
		Expect(err).NotTo(HaveOccurred())
		Expect(config.OS + "/" + config.Architecture).To(Equal("linux/amd64"))
		Expect(config.Config.Labels).To(Equal(map[string]string{
			"owner": "director", "org.opencontainers.image.title": jammy.Name, "org.opencontainers.image.version": "1.10",
		}))
		Expect(log.String()).To(ContainSubstring("percent=100"))
	})

	It("tags the image with a readable name, so that registries do not delete it", func(ctx SpecContext) {
		store, _ := newStore(registry)
		cid, err := store.Push(ctx, writeTempFile(stemcells.Jammy.Image()), jammy, nil)
		Expect(err).NotTo(HaveOccurred())
		repository, err := name.NewRepository(registry.Host()+"/bosh/stemcells", name.Insecure)
		Expect(err).NotTo(HaveOccurred())
		_, digest, _ := strings.Cut(cid, "@sha256:")
		Expect(remote.List(repository)).To(ContainElement("bosh-warden-boshlite-ubuntu-jammy-go_agent-1.10-" + digest[:12]))
	})

	It("returns the same CID for the same stemcell, and uploads nothing twice", func(ctx SpecContext) {
		store, _ := newStore(registry)
		file := stemcells.Jammy.Image()
		first, err := store.Push(ctx, writeTempFile(file), jammy, nil)
		Expect(err).NotTo(HaveOccurred())
		manifests := registry.CountManifests()
		second, err := store.Push(ctx, writeTempFile(file), jammy, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(second).To(Equal(first))
		Expect(registry.UploadCounts()).To(And(HaveLen(2), HaveKeyWithValue(digestOf(file), 1), HaveEach(1)))
		Expect(registry.CountManifests()).To(Equal(manifests))
	})

	It("builds reproducible images", func(ctx SpecContext) {
		store, _ := newStore(registry)
		cid, err := store.Push(ctx, writeTempFile(stemcells.Noble.Tar()), jammy, map[string]string{"owner": "director"})
		Expect(err).NotTo(HaveOccurred())
		Expect(cid).To(HaveSuffix("@sha256:276d77202782232f807577172d65f34e50a4dbbef6a3d02fa6d527c0a2426a89#amd64"))
	})

	It("shares the layer, but not the image, between two owners", func(ctx SpecContext) {
		store, _ := newStore(registry)
		file := stemcells.Jammy.Image()
		cidA, err := store.Push(ctx, writeTempFile(file), jammy, map[string]string{"owner": "a"})
		Expect(err).NotTo(HaveOccurred())
		cidB, err := store.Push(ctx, writeTempFile(file), jammy, map[string]string{"owner": "b"})
		Expect(err).NotTo(HaveOccurred())
		Expect(cidB).NotTo(Equal(cidA))
		Expect(registry.UploadCounts()).To(HaveKeyWithValue(digestOf(file), 1))
		Expect(store.Delete(ctx, cidA)).To(Succeed())
		pullImage(cidB)
	})

	It("accepts an uncompressed archive", func(ctx SpecContext) {
		store, _ := newStore(registry)
		file := stemcells.Noble.Tar()
		cid, err := store.Push(ctx, writeTempFile(file), jammy, nil)
		Expect(err).NotTo(HaveOccurred())
		image, err := remote.Image(parseHeavyCID(cid))
		Expect(err).NotTo(HaveOccurred())
		layers, err := image.Layers()
		Expect(err).NotTo(HaveOccurred())
		Expect(layers[0].MediaType()).To(BeEquivalentTo("application/vnd.oci.image.layer.v1.tar"))
		Expect(layers[0].Digest()).To(HaveField("String()", digestOf(file)))
		Expect(layers[0].DiffID()).To(HaveField("String()", digestOf(file)))
	})

	It("sets the BOSH agent's architecture in the image and in the CID", func(ctx SpecContext) {
		store, _ := newStore(registry)
		arm := stemcells.Noble
		arm.ELFMachine = 183
		cid, err := store.Push(ctx, writeTempFile(arm.Image()), jammy, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(pullImage(cid).ConfigFile()).To(HaveField("Architecture", "arm64"))
		Expect(stemcell.Architectures(cid)).To(Equal([]string{"arm64"}))
	})

	It("uses a limited amount of memory for a large stemcell", func(ctx SpecContext) {
		large := stemcells.Jammy
		large.Filler = 96 << 20
		path := writeTempFile(large.Image())
		store, _ := newStore(registry)
		registry.SetFault(discardUploads)
		allocated := func() uint64 {
			var memory runtime.MemStats
			runtime.ReadMemStats(&memory)
			return memory.TotalAlloc
		}
		previous := allocated()
		_, err := store.Push(ctx, path, jammy, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(allocated() - previous).To(BeNumerically("<", 16<<20))
	})

	It("fails if no registry is configured", func(ctx SpecContext) {
		_, err := stemcell.Store{}.Push(ctx, writeTempFile(stemcells.Jammy.Image()), jammy, nil)
		Expect(err).To(MatchError(stemcell.ErrNoRegistry))
	})

	It("stops when its context is canceled", func(ctx SpecContext) {
		store, _ := newStore(registry)
		cancelableCtx, cancel := cancelableContext(ctx)
		registry.SetFault(func(_ http.ResponseWriter, request *http.Request) bool {
			if request.Method == http.MethodPatch {
				cancel()
			}
			return false
		})
		_, err := store.Push(cancelableCtx, writeTempFile(stemcells.Jammy.Image()), jammy, nil)
		Expect(err).To(MatchError(context.Canceled))
		Expect(registry.CountManifests()).To(BeZero())
	})
})

// discardUploads accepts and discards uploads, so that tests do not measure the registry's memory.
func discardUploads(w http.ResponseWriter, request *http.Request) bool {
	if strings.Contains(request.URL.Path, "/manifests/") && request.Method == http.MethodPut {
		w.WriteHeader(http.StatusCreated)
		return true
	}
	switch request.Method {
	case http.MethodPatch:
		_, _ = io.Copy(io.Discard, request.Body)
		w.Header().Set("Location", request.URL.Path)
		w.WriteHeader(http.StatusAccepted)
	case http.MethodPut:
		w.WriteHeader(http.StatusCreated)
	default:
		return false
	}
	return true
}

var _ = Describe("A damaged stemcell", func() {
	valid := stemcells.Jammy.Image()
	flipped := append([]byte{}, valid...)
	flipped[len(flipped)/2] ^= 0xff
	withoutAgent := stemcells.Jammy
	withoutAgent.AgentConfig = ""

	DescribeTable("is rejected without changes in the registry", func(ctx SpecContext, content []byte, message string) {
		registry := startRegistry(false)
		store, _ := newStore(registry)
		_, err := store.Push(ctx, writeTempFile(content), jammy, nil)
		Expect(err).To(MatchError(stemcell.ErrInvalid))
		Expect(err).To(MatchError(ContainSubstring(message)))
		Expect(registry.UploadCounts()).To(BeEmpty())
		Expect(registry.CountManifests()).To(BeZero())
	},
		Entry("truncated", valid[:len(valid)-1000], "is incomplete; download the stemcell again"),
		Entry("truncated in its checksum", valid[:len(valid)-4], "is incomplete"),
		Entry("with a flipped bit", flipped, "is damaged; download the stemcell again"),
		Entry("in another format", []byte(strings.Repeat("QFI\xfb", 1000)), "is not a tar archive"),
		Entry("with data after the archive", append(append([]byte{}, valid...), "something that is not gzip"...), "is damaged"),
		Entry("without a BOSH agent", withoutAgent.Image(), "has no /var/vcap/bosh/agent.json"),
		Entry("truncated and uncompressed", stemcells.Jammy.Tar()[:1<<19], "is incomplete"),
	)

	It("is rejected if the file does not exist", func(ctx SpecContext) {
		store, _ := newStore(startRegistry(false))
		_, err := store.Push(ctx, "/nonexistent/image", jammy, nil)
		Expect(err).To(MatchError(stemcell.ErrInvalid))
		Expect(err).To(MatchError(os.ErrNotExist))
	})
})
