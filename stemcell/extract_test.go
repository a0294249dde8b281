package stemcell_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/stemcell"
	"bosh-kubernetes-cpi/test/stemcells"
)

func formatted(format string, value any) string { return fmt.Sprintf(format, value) }

var _ = Describe("A stemcell tarball", func() {
	extract := func(image []byte, changes map[string]string) (stemcell.Manifest, string, error) {
		folder := GinkgoT().TempDir()
		tarball := filepath.Join(folder, "stemcell.tgz")
		stemcells.Tarball(tarball, image, changes)
		return stemcell.Extract(tarball, folder)
	}

	It("gives its manifest and its image", func() {
		content := stemcells.Jammy.Image()
		manifest, image, err := extract(content, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(manifest.Name).To(Equal("bosh-warden-boshlite-ubuntu-jammy-go_agent"))
		Expect(manifest.Version).To(Equal("1.10"))
		Expect(manifest.APIVersion).To(Equal(3))
		Expect(manifest.OperatingSystem).To(Equal("ubuntu-jammy"))
		Expect(os.ReadFile(image)).To(Equal(content))
	})

	It("may have other digests in its sha1", func() {
		content := stemcells.Jammy.Image()
		_, _, err := extract(content, map[string]string{"sha1": digestOf(content)})
		Expect(err).NotTo(HaveOccurred())
	})

	DescribeTable("is refused with the name of the field", func(field, value, message string) {
		_, _, err := extract(stemcells.Jammy.Image(), map[string]string{field: value})
		Expect(err).To(MatchError(stemcell.ErrInvalid))
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("no name", "name", "", "stemcell.MF: name is missing"),
		Entry("no version", "version", "", "stemcell.MF: version is missing"),
		Entry("a number as version", "version", "1.10", "stemcell.MF: version is a number, which loses its zeros: put it in quotes"),
		Entry("no sha1", "sha1", "", "stemcell.MF: sha1 is missing"),
		Entry("another sha1", "sha1", strings.Repeat("0", 40), "download the stemcell again"),
		Entry("an unknown digest", "sha1", "md5:0", `digest of kind "md5"`),
		Entry("no operating_system", "operating_system", "", "stemcell.MF: operating_system is missing"),
		Entry("no api_version", "api_version", "", "the stemcell has api_version 1, and this CPI needs at least 2"),
		Entry("an old api_version", "api_version", "1", "the stemcell has api_version 1"),
		Entry("another format", "stemcell_formats", "[openstack-raw]", "stemcell_formats are openstack-raw"),
		Entry("light", "cloud_properties", "{image_reference: ubuntu}", "is a light stemcell"),
		Entry("no YAML", "name", "[", "stemcell.MF"),
	)

	It("is refused when it is none", func() {
		folder := GinkgoT().TempDir()
		_, _, err := stemcell.Extract(writeTempFile([]byte("PK")), folder)
		Expect(err).To(MatchError(ContainSubstring("is not a stemcell tarball")))
		_, _, err = stemcell.Extract(writeTempFile(stemcells.Jammy.Image()), folder)
		Expect(err).To(MatchError(ContainSubstring("holds no stemcell.MF")))
		complete := filepath.Join(folder, "stemcell.tgz")
		stemcells.Tarball(complete, stemcells.Jammy.Image(), nil)
		content, err := os.ReadFile(complete)
		Expect(err).NotTo(HaveOccurred())
		_, _, err = stemcell.Extract(writeTempFile(content[:len(content)/2]), folder)
		Expect(err).To(MatchError(ContainSubstring("is damaged")))
	})
})

var _ = Describe("Building a light stemcell's image", func() {
	build := func(ctx SpecContext, rootfs stemcells.Rootfs) (v1.Image, error) {
		registry := startRegistry(false)
		store, _ := newStore(registry)
		pinned, err := store.Build(ctx, writeTempFile(rootfs.Image()), jammy)
		if err != nil {
			return nil, err
		}
		return remote.Image(pinned)
	}

	It("makes the root filesystem the image's only layer, as it is", func(ctx SpecContext) {
		image, err := build(ctx, stemcells.Jammy)
		Expect(err).NotTo(HaveOccurred())
		layers, err := image.Layers()
		Expect(err).NotTo(HaveOccurred())
		Expect(layers).To(HaveLen(1))
		Expect(layers[0].Digest()).To(HaveField("String()", digestOf(stemcells.Jammy.Image())))
	})

	DescribeTable("starts the init of its kind", func(ctx SpecContext, rootfs stemcells.Rootfs, init, stop string) {
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

	It("is refused without an init", func(ctx SpecContext) {
		rootfs := stemcells.Jammy
		rootfs.Init = ""
		_, err := build(ctx, rootfs)
		Expect(err).To(MatchError(ContainSubstring("no init program that is known")))
	})

	DescribeTable("is refused with an agent.json that cannot be", func(ctx SpecContext, given, message string) {
		rootfs := stemcells.Jammy
		rootfs.AgentConfig = given
		_, err := build(ctx, rootfs)
		Expect(err).To(MatchError(stemcell.ErrInvalid))
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("no JSON", "Platform:", "agent.json is not a JSON hash"),
		Entry("two documents", "{} {}", "agent.json is not a JSON hash"),
		Entry("a list", "[]", "agent.json is not a JSON hash"),
		Entry("nothing", "null", "agent.json is not a JSON hash: it is null"),
	)
})
