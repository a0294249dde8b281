package stemcells_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/harness/authority"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

// unreachableKubeconfig is a kubeconfig of an unreachable API server: none of these calls sends a request to the cluster.
const unreachableKubeconfig = `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
	"users": [{"name": "u", "user": {}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "bosh"}}]}`

type response struct {
	Result any
	Error  *struct{ Type, Message string }
}

var _ = Describe("The stemcell methods", func() {
	var (
		registry *stemcells.Registry
		config   cpi.Config
		log      *bytes.Buffer
	)
	BeforeEach(func() {
		registry = stemcells.NewRegistry(false)
		DeferCleanup(registry.Close)
		log = &bytes.Buffer{}
		config = cpi.DefaultConfig()
		config.Agent.Mbus = "nats://nats.test:4222"
		config.Kubeconfig = unreachableKubeconfig
		config.Stemcell.Registry = stemcell.Registry{Repository: registry.Host() + "/bosh/stemcells", Insecure: true}
	})
	// call returns the response to a request. extra is added to its context.
	call := func(ctx context.Context, method, extra string, arguments ...any) response {
		raw, err := json.Marshal(append([]any{}, arguments...))
		Expect(err).NotTo(HaveOccurred())
		request := fmt.Sprintf(`{"method":%q,"arguments":%s,"context":{"director_uuid":"d-1"%s},"api_version":2}`, method, raw, extra)
		var out bytes.Buffer
		server := cpi.Server{Config: func() (cpi.Config, error) { return config, config.Validate() }, Log: log}
		Expect(server.Serve(ctx, strings.NewReader(request), &out)).To(Succeed())
		var got response
		Expect(json.Unmarshal(out.Bytes(), &got)).To(Succeed())
		return got
	}
	properties := map[string]string{"name": "bosh-warden-boshlite-ubuntu-jammy-go_agent", "version": "1.10", "infrastructure": "warden"}
	// extractAsDirector extracts a stemcell tarball as the director does before it calls create_stemcell. It returns the path of the
	// image and the cloud properties.
	extractAsDirector := func(tarball string) (string, map[string]any) {
		path := filepath.Join(GinkgoT().TempDir(), "image")
		var manifest stemcell.Manifest
		for name, content := range readTarball(tarball) {
			switch name {
			case "image":
				Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
			case "stemcell.MF":
				var err error
				manifest, err = stemcell.ParseManifest(content)
				Expect(err).NotTo(HaveOccurred())
				Expect(manifest.CloudProperties).NotTo(BeZero())
			}
		}
		raw, err := json.Marshal(manifest.CloudProperties)
		Expect(err).NotTo(HaveOccurred())
		cloudProperties := map[string]any{}
		Expect(json.Unmarshal(raw, &cloudProperties)).To(Succeed())
		return path, cloudProperties
	}
	createHeavyStemcell := func(ctx context.Context) string {
		tarball := filepath.Join(GinkgoT().TempDir(), "stemcell.tgz")
		stemcells.Tarball(tarball, stemcells.Jammy.Image(), nil)
		path, cloudProperties := extractAsDirector(tarball)
		got := call(ctx, "create_stemcell", "", path, cloudProperties)
		Expect(got.Error).To(BeNil())
		return got.Result.(string)
	}

	It("list the supported formats", func(ctx SpecContext) {
		Expect(call(ctx, "info", "").Result).To(HaveKeyWithValue("stemcell_formats",
			ConsistOf("kubernetes-light", "docker-light", "warden-tar", "general-tar")))
	})

	It("push the same stemcell once and return the same CID", func(ctx SpecContext) {
		first := createHeavyStemcell(ctx)
		Expect(createHeavyStemcell(ctx)).To(Equal(first))
		Expect(registry.UploadCounts()).To(HaveEach(1))
		Expect(log.String()).To(ContainSubstring("pushing the image of the stemcell"))
	})

	It("push the image of bosh-node with a heavy stemcell", func(ctx SpecContext) {
		layout, digest := stemcells.NodeImage(GinkgoT().TempDir(), "ghcr.test/bosh-node")
		config.NodeImageLayout = layout
		createHeavyStemcell(ctx)
		Expect(registry.Requests()).To(ContainElement("PUT /v2/bosh/stemcells/manifests/" + digest))
	})

	It("send no request to the cluster or the registry to delete a light stemcell", func(ctx SpecContext) {
		Expect(call(ctx, "delete_stemcell", "", registry.Host()+"/a@sha256:"+strings.Repeat("0", 64)).Error).To(BeNil())
		Expect(registry.Requests()).To(BeEmpty())
	})

	It("report both remedies if no registry is configured", func(ctx SpecContext) {
		config.Stemcell.Registry = stemcell.Registry{}
		image := filepath.Join(GinkgoT().TempDir(), "image")
		Expect(os.WriteFile(image, stemcells.Jammy.Image(), 0o600)).To(Succeed())
		got := call(ctx, "create_stemcell", "", image, properties)
		Expect(got.Error.Type).To(Equal("Bosh::Clouds::NotSupported"))
		Expect(got.Error.Message).To(And(ContainSubstring("set kubernetes.stemcell.registry.repository"), ContainSubstring("convert the stemcell to a light one")))
	})

	It("use the registry of a cpi-config, without the credentials of the configured one", func(ctx SpecContext) {
		config.Stemcell.Registry.Username, config.Stemcell.Registry.Password = "bosh", "sesame"
		other := stemcells.NewRegistry(false)
		DeferCleanup(other.Close)
		image := filepath.Join(GinkgoT().TempDir(), "image")
		Expect(os.WriteFile(image, stemcells.Jammy.Image(), 0o600)).To(Succeed())
		override := fmt.Sprintf(`,"kubernetes":{"stemcell":{"registry":{"repository":"%s/theirs","insecure":true}}}`, other.Host())
		other.SetFault(func(_ http.ResponseWriter, request *http.Request) bool {
			Expect(request.Header).NotTo(HaveKey("Authorization"))
			return false
		})
		Expect(call(ctx, "create_stemcell", override, image, properties).Result).To(HavePrefix("heavy://" + other.Host() + "/theirs@sha256:"))
		Expect(registry.Requests()).To(BeEmpty())
	})

	DescribeTable("report an error of the registry with its type and remedy", func(ctx SpecContext, fault func(), kind, message string) {
		fault()
		image := filepath.Join(GinkgoT().TempDir(), "image")
		Expect(os.WriteFile(image, stemcells.Jammy.Image(), 0o600)).To(Succeed())
		got := call(ctx, "create_stemcell", "", image, properties)
		Expect(got.Error.Type).To(Equal("Bosh::Clouds::" + kind))
		Expect(got.Error.Message).To(And(HavePrefix("push the stemcell's image to "+config.Stemcell.Registry.Repository+": "), ContainSubstring(message)))
		Expect(registry.CountManifests()).To(BeZero())
	},
		Entry("full", func() { registry.SetFault(stemcells.RejectMethod(http.MethodPatch, 507, "X")) },
			"NoDiskSpace", "is full; free space there (delete images, run its garbage collection), and retry"),
		Entry("denied", func() { registry.SetFault(stemcells.RejectMethod(http.MethodPost, 403, "X")) },
			"CloudError", "denied access; grant the account of kubernetes.stemcell.registry permission to pull, push and delete in that repository"),
		Entry("wrong credentials", func() { registry.Username, registry.Password = "bosh", "sesame" },
			"CloudError", "rejected the credentials; check kubernetes.stemcell.registry.username and password, or token"),
		Entry("connection lost during the upload", func() { registry.SetFault(stemcells.BreakUploads(1000)) },
			"CloudError", "; check the network, proxies and the registry's log, and retry"),
		Entry("certificate of an unknown authority", func() {
			registry = stemcells.NewRegistry(true)
			DeferCleanup(registry.Close)
			other, err := authority.New()
			Expect(err).NotTo(HaveOccurred())
			config.Stemcell.Registry = stemcell.Registry{Repository: registry.Host() + "/bosh/stemcells", CA: other.Certificate}
		}, "CloudError", "is not trusted; set kubernetes.stemcell.registry.ca to the CA certificate that signed it"),
		Entry("no TLS", func() { config.Stemcell.Registry.Insecure = false },
			"CloudError", "set kubernetes.stemcell.registry.insecure to true"),
	)

	damaged := stemcells.Jammy.Image()
	damaged[len(damaged)/2] ^= 0xff

	DescribeTable("reject an invalid stemcell", func(ctx SpecContext, content []byte, extra, message string) {
		image := filepath.Join(GinkgoT().TempDir(), "image")
		Expect(os.WriteFile(image, content, 0o600)).To(Succeed())
		got := call(ctx, "create_stemcell", extra, image, properties)
		Expect(got.Error.Type).To(Equal("Bosh::Clouds::CpiError"))
		Expect(got.Error.Message).To(ContainSubstring(message))
		Expect(registry.CountManifests()).To(BeZero())
	},
		Entry("empty, without an image reference", nil, "", "cloud_properties.image_reference is missing"),
		Entry("incomplete", stemcells.Jammy.Image()[:5000], "", "is incomplete; download the stemcell again and verify its SHA-1 checksum"),
		Entry("damaged", damaged, "", "is damaged; download the stemcell again and verify its SHA-1 checksum"),
		Entry("too old", stemcells.Jammy.Image(), `,"vm":{"stemcell":{"api_version":1}}`, "api_version 1 is not supported"),
	)

	It("reject a VM with a stemcell that is too old, without creating objects", func(ctx SpecContext) {
		got := call(ctx, "create_vm", `,"vm":{"stemcell":{"api_version":1}}`, "a-1", "example.test/a:1", map[string]any{},
			map[string]any{"default": map[string]any{"type": "dynamic"}}, []string{}, map[string]any{})
		Expect(got.Error.Message).To(ContainSubstring("api_version 1"))
	})
})

// readTarball returns the files of a stemcell tarball by their names.
func readTarball(path string) map[string][]byte {
	file, err := os.Open(path)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	plain, err := gzip.NewReader(file)
	Expect(err).NotTo(HaveOccurred())
	found := map[string][]byte{}
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		Expect(err).NotTo(HaveOccurred())
		found[header.Name], err = io.ReadAll(archive)
		Expect(err).NotTo(HaveOccurred())
	}
}
