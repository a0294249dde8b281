package stemcell_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

var _ = Describe("A stemcell tarball", func() {
	extract := func(image []byte, changes map[string]string) (stemcell.Manifest, string, error) {
		dir := GinkgoT().TempDir()
		tarball := filepath.Join(dir, "stemcell.tgz")
		stemcells.Tarball(tarball, image, changes)
		return stemcell.Extract(tarball, dir)
	}

	It("contains a manifest and an image", func() {
		content := stemcells.Jammy.Image()
		manifest, image, err := extract(content, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(manifest.Name).To(Equal("bosh-warden-boshlite-ubuntu-jammy-go_agent"))
		Expect(manifest.Version).To(Equal("1.10"))
		Expect(manifest.APIVersion).To(Equal(3))
		Expect(manifest.OperatingSystem).To(Equal("ubuntu-jammy"))
		Expect(os.ReadFile(image)).To(Equal(content))
	})

	It("can have a digest with another algorithm in sha1", func() {
		content := stemcells.Jammy.Image()
		_, _, err := extract(content, map[string]string{"sha1": digestOf(content)})
		Expect(err).NotTo(HaveOccurred())
	})

	DescribeTable("is rejected with an error that names the invalid field", func(field, value, message string) {
		_, _, err := extract(stemcells.Jammy.Image(), map[string]string{field: value})
		Expect(err).To(MatchError(stemcell.ErrInvalid))
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("missing name", "name", "", "stemcell.MF: name is missing"),
		Entry("missing version", "version", "", "stemcell.MF: version is missing"),
		Entry("version that is a number", "version", "1.10", "stemcell.MF: version is a number, which loses trailing zeros; quote it"),
		Entry("name that is a list", "name", "[]", "stemcell.MF.name must be a string, not a list"),
		Entry("missing sha1", "sha1", "", "stemcell.MF: sha1 is missing"),
		Entry("wrong sha1", "sha1", strings.Repeat("0", 40), "download the stemcell again"),
		Entry("unknown digest algorithm", "sha1", "md5:0", `digest algorithm "md5" in sha1 is not valid`),
		Entry("missing operating_system", "operating_system", "", "stemcell.MF: operating_system is missing"),
		Entry("missing api_version", "api_version", "", "stemcell.MF: api_version 1 is not supported"),
		Entry("unsupported api_version", "api_version", "1", "use a stemcell with api_version 2 or later"),
		Entry("unsupported format", "stemcell_formats", "[openstack-raw]", "stemcell_formats openstack-raw are not supported"),
		Entry("light stemcell", "cloud_properties", "{image_reference: ubuntu}", "is already a light stemcell"),
		Entry("manifest that is not YAML", "name", "[", "stemcell.MF"),
	)

	It("is rejected if it is not a complete stemcell tarball", func() {
		dir := GinkgoT().TempDir()
		_, _, err := stemcell.Extract(writeTempFile([]byte("PK")), dir)
		Expect(err).To(MatchError(ContainSubstring("is not a gzipped tar archive")))
		_, _, err = stemcell.Extract(writeTempFile(stemcells.Jammy.Image()), dir)
		Expect(err).To(MatchError(ContainSubstring("has no stemcell.MF")))
		complete := filepath.Join(dir, "stemcell.tgz")
		stemcells.Tarball(complete, stemcells.Jammy.Image(), nil)
		content, err := os.ReadFile(complete)
		Expect(err).NotTo(HaveOccurred())
		_, _, err = stemcell.Extract(writeTempFile(content[:len(content)/2]), dir)
		Expect(err).To(MatchError(ContainSubstring("is damaged")))
		corrupt := slices.Concat(content[:len(content)/2], bytes.Repeat([]byte{0xff}, len(content)/2))
		_, _, err = stemcell.Extract(writeTempFile(corrupt), dir)
		Expect(err).To(MatchError(stemcell.ErrInvalid))
	})
})

var _ = Describe("Building the image of a light stemcell", func() {
	build := func(ctx SpecContext, rootfs stemcells.Rootfs) (v1.Image, error) {
		registry := startRegistry(false)
		store, _ := newStore(registry)
		pinned, err := store.Build(ctx, writeTempFile(rootfs.Image()), jammy)
		if err != nil {
			return nil, err
		}
		return remote.Image(pinned)
	}

	It("uses the unchanged root filesystem as the only layer", func(ctx SpecContext) {
		image, err := build(ctx, stemcells.Jammy)
		Expect(err).NotTo(HaveOccurred())
		layers, err := image.Layers()
		Expect(err).NotTo(HaveOccurred())
		Expect(layers).To(HaveLen(1))
		Expect(layers[0].Digest()).To(HaveField("String()", digestOf(stemcells.Jammy.Image())))
	})

	DescribeTable("sets the init program as the command", func(ctx SpecContext, rootfs stemcells.Rootfs, init, stop string) {
		image, err := build(ctx, rootfs)
		Expect(err).NotTo(HaveOccurred())
		config, err := image.ConfigFile()
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Config.Cmd).To(Equal([]string{init}))
		Expect(config.Config.StopSignal).To(Equal(stop))
	},
		Entry("runit", stemcells.Jammy, "/usr/sbin/runsvdir-start", ""),
		Entry("systemd", stemcells.Noble, "/usr/sbin/init", "SIGRTMIN+3"),
	)

	It("fails without an init program", func(ctx SpecContext) {
		rootfs := stemcells.Jammy
		rootfs.Init = ""
		_, err := build(ctx, rootfs)
		Expect(err).To(MatchError(ContainSubstring("none of the known init programs")))
	})

	DescribeTable("fails for an invalid agent.json", func(ctx SpecContext, agentConfig, message string) {
		rootfs := stemcells.Jammy
		rootfs.AgentConfig = agentConfig
		_, err := build(ctx, rootfs)
		Expect(err).To(MatchError(stemcell.ErrInvalid))
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("blank", " ", "agent.json: is empty"),
		Entry("not JSON", "Platform:", "agent.json: is not valid JSON"),
		Entry("two documents", "{} {}", "agent.json: is not valid JSON"),
		Entry("list", "[]", "agent.json must be a hash, not a list"),
		Entry("null", "null", "agent.json is not a JSON object: it is null"),
	)
})
