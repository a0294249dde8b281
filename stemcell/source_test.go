package stemcell_test

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

	DescribeTable("is refused with the name of the field", func(field, value, says string) {
		_, _, err := extract(stemcells.Jammy.Image(), map[string]string{field: value})
		Expect(err).To(MatchError(stemcell.ErrInvalid))
		Expect(err).To(MatchError(ContainSubstring(says)))
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
		_, _, err := stemcell.Extract(fileWith([]byte("PK")), folder)
		Expect(err).To(MatchError(ContainSubstring("is not a stemcell tarball")))
		_, _, err = stemcell.Extract(fileWith(stemcells.Jammy.Image()), folder)
		Expect(err).To(MatchError(ContainSubstring("holds no stemcell.MF")))
		whole := filepath.Join(folder, "stemcell.tgz")
		stemcells.Tarball(whole, stemcells.Jammy.Image(), nil)
		content, err := os.ReadFile(whole)
		Expect(err).NotTo(HaveOccurred())
		_, _, err = stemcell.Extract(fileWith(content[:len(content)/2]), folder)
		Expect(err).To(MatchError(ContainSubstring("is damaged")))
	})
})

// files are the regular files in a layer, by name, and the headers of all its entries.
func files(layer v1.Layer) (map[string]string, map[string]*tar.Header) {
	content, err := layer.Compressed()
	Expect(err).NotTo(HaveOccurred())
	contents, headers := map[string]string{}, map[string]*tar.Header{}
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return contents, headers
		}
		Expect(err).NotTo(HaveOccurred())
		headers[header.Name] = header
		if header.Typeflag == tar.TypeReg {
			raw, err := io.ReadAll(archive)
			Expect(err).NotTo(HaveOccurred())
			contents[header.Name] = string(raw)
		}
	}
}

var _ = Describe("Building a light stemcell's image", func() {
	build := func(ctx SpecContext, rootfs stemcells.Rootfs) (v1.Image, error) {
		registry := registryFor(false)
		store, _ := storeAt(registry)
		pinned, err := store.Build(ctx, fileWith(rootfs.Image()), jammy)
		if err != nil {
			return nil, err
		}
		return remote.Image(pinned)
	}

	It("adds a small layer with an agent.json for this CPI's machines", func(ctx SpecContext) {
		image, err := build(ctx, stemcells.Jammy)
		Expect(err).NotTo(HaveOccurred())
		layers, err := image.Layers()
		Expect(err).NotTo(HaveOccurred())
		Expect(layers).To(HaveLen(2))
		Expect(layers[0].Digest()).To(HaveField("String()", digestOf(stemcells.Jammy.Image())))
		content, headers := files(layers[1])
		Expect(content).To(HaveLen(1))
		Expect(content["var/vcap/bosh/agent.json"]).To(MatchJSON(`{
		  "Platform": {"Linux": {"UsePreformattedPersistentDisk": true, "BindMountPersistentDisk": false, "SkipDiskSetup": true,
		    "UseDefaultTmpDir": true, "ServiceManager": "systemd"}},
		  "Infrastructure": {"Settings": {"Sources": [{"Type": "File", "SettingsPath": "/var/vcap/bosh/warden-cpi-agent-env.json"}]}}}`))
		Expect(headers["var/vcap/bosh/agent.json"].Mode).To(BeEquivalentTo(0o640))
		Expect(headers["var/vcap/bosh/"].Mode).To(BeEquivalentTo(0o750))
		Expect(headers["var/vcap/bosh/"].Gid).To(Equal(1000))
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

	DescribeTable("keeps what agent.json says otherwise", func(ctx SpecContext, given, source string) {
		rootfs := stemcells.Jammy
		rootfs.AgentConfig = given
		image, err := build(ctx, rootfs)
		Expect(err).NotTo(HaveOccurred())
		layers, err := image.Layers()
		Expect(err).NotTo(HaveOccurred())
		content, _ := files(layers[1])
		var made struct {
			Infrastructure struct {
				Settings struct{ Sources json.RawMessage }
			}
		}
		Expect(json.Unmarshal([]byte(content["var/vcap/bosh/agent.json"]), &made)).To(Succeed())
		Expect(made.Infrastructure.Settings.Sources).To(MatchJSON(source))
	},
		Entry("an older Kubernetes stemcell's settings file",
			`{"Infrastructure": {"Settings": {"Sources": [{"Type": "File", "SettingsPath": "/var/vcap/bosh/instance_settings.json"}]}}}`,
			`[{"Type": "File", "SettingsPath": "/var/vcap/bosh/instance_settings.json"}]`),
		Entry("another infrastructure's settings", `{"Infrastructure": {"Settings": {"Sources": [{"Type": "HTTP", "URI": "http://169.254.169.254"}], "UseRegistry": true}}}`,
			`[{"Type": "File", "SettingsPath": "/var/vcap/bosh/warden-cpi-agent-env.json"}]`),
		Entry("nothing", `{}`, `[{"Type": "File", "SettingsPath": "/var/vcap/bosh/warden-cpi-agent-env.json"}]`),
	)

	DescribeTable("is refused with an agent.json that cannot be", func(ctx SpecContext, given, says string) {
		rootfs := stemcells.Jammy
		rootfs.AgentConfig = given
		_, err := build(ctx, rootfs)
		Expect(err).To(MatchError(stemcell.ErrInvalid))
		Expect(err).To(MatchError(ContainSubstring(says)))
	},
		Entry("no JSON", "Platform:", "agent.json is not a JSON hash"),
		Entry("two documents", "{} {}", "something after its JSON hash"),
		Entry("another type", `{"Platform": []}`, "Platform is not a hash"),
	)
})
