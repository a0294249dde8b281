package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/klauspost/compress/gzip"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// sbom contains the parts of an SBOM that the specs check.
type sbom struct {
	SpecVersion string
	Metadata    struct{ Component sbomComponent }
	Components  []sbomComponent
}

type sbomComponent struct {
	Name, Version, Purl string
	Hashes              []struct{ Content string }
	Licenses            []struct{ License struct{ ID string } }
	Properties          []struct{ Name, Value string }
}

// writeAndRead writes an SBOM, and returns its content. It checks the format of all package URLs.
func writeAndRead(target subject, components []component) sbom {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "sbom.cdx.json")
	Expect(writeSBOM(path, target, components)).To(Succeed())
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	var written sbom
	Expect(json.Unmarshal(content, &written)).To(Succeed())
	Expect(written.SpecVersion).To(Equal("1.6"))
	for _, component := range append(written.Components, written.Metadata.Component) {
		Expect(component.Purl).To(MatchRegexp(`^pkg:(golang|generic)/[^@+ ]+@[^@+ ]+$`), component.Name)
	}
	return written
}

// purls returns the package URLs of the components.
func (s sbom) purls() []string {
	var purls []string
	for _, component := range s.Components {
		purls = append(purls, component.Purl)
	}
	return purls
}

var _ = Describe("An SBOM of a program", func() {
	It("contains the program, its checksum, and its components with versions and licenses", func() {
		program := filepath.Join(GinkgoT().TempDir(), "cpi")
		Expect(os.WriteFile(program, []byte("program"), 0o600)).To(Succeed())
		info := &buildinfo.BuildInfo{Path: "example.com/main/cmd/cpi", Main: debug.Module{Path: "example.com/main", Version: "1.2.3"}}
		written := writeAndRead(programSubject(program, info), []component{
			{path: "example.com/a", version: "v1.0.0", sum: "h1:sum", licenses: []string{"MIT"}},
			{path: "example.com/b", version: "v2.0.0+incompatible"},
		})
		cpi := written.Metadata.Component
		Expect(cpi.Name + " " + cpi.Version).To(Equal("cpi 1.2.3"))
		Expect(cpi.Purl).To(Equal("pkg:golang/example.com/main@1.2.3#cmd/cpi"))
		Expect(cpi.Hashes).To(ConsistOf(HaveField("Content", "1310ca2c8932dbd118668bd97442558a3e1f546b5e15c69699dfbd6024f548d8")))
		Expect(written.purls()).To(Equal([]string{"pkg:golang/example.com/a@v1.0.0", "pkg:golang/example.com/b@v2.0.0%2Bincompatible"}))
		Expect(written.Components[0].Licenses).To(ConsistOf(HaveField("License.ID", "MIT")))
		Expect(written.Components[0].Properties).To(ConsistOf(HaveField("Value", "h1:sum")))
	})

	It("lists the standard library and every module of the test program", func() {
		program, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		info, err := buildinfo.ReadFile(program)
		Expect(err).NotTo(HaveOccurred())
		components, err := componentsOf(info)
		Expect(err).NotTo(HaveOccurred())
		written := writeAndRead(programSubject(program, info), components)
		Expect(written.purls()).To(HaveLen(len(info.Deps) + 1))
		Expect(written.purls()).To(ContainElement("pkg:golang/stdlib@" + runtime.Version()[len("go"):]))
	})
})

// gzipTar returns a gzipped tar archive of the files.
func gzipTar(files map[string]string) string {
	GinkgoHelper()
	var archive bytes.Buffer
	compressed := gzip.NewWriter(&archive)
	entries := tar.NewWriter(compressed)
	for name, content := range files {
		Expect(entries.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))})).To(Succeed())
		_, err := entries.Write([]byte(content))
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(entries.Close()).To(Succeed())
	Expect(compressed.Close()).To(Succeed())
	return archive.String()
}

var _ = Describe("An SBOM of a BOSH release", func() {
	const manifest = "name: bosh-kubernetes-cpi\nversion: 1.2.3\n"
	writeRelease := func(files map[string]string) string {
		GinkgoHelper()
		tarball := filepath.Join(GinkgoT().TempDir(), "release.tgz")
		Expect(os.WriteFile(tarball, []byte(gzipTar(files)), 0o600)).To(Succeed())
		return tarball
	}
	withProgram := func(wrap func(program string) map[string]string) string {
		GinkgoHelper()
		path, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		program, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		return writeRelease(map[string]string{"./release.MF": manifest, "./packages/kubernetes_cpi.tgz": gzipTar(wrap(string(program)))})
	}

	DescribeTable("contains the release, the standard library and the modules of a program", func(wrap func(program string) map[string]string) {
		release, components, err := releaseComponents(withProgram(wrap))
		Expect(err).NotTo(HaveOccurred())
		written := writeAndRead(release, components)
		Expect(written.Metadata.Component.Purl).To(Equal("pkg:generic/bosh-kubernetes-cpi@1.2.3"))
		Expect(written.Metadata.Component.Hashes).To(HaveLen(1))
		info, _ := debug.ReadBuildInfo()
		Expect(written.purls()).To(HaveLen(len(info.Deps) + 1))
		Expect(written.purls()).To(ContainElement("pkg:golang/stdlib@" + runtime.Version()[len("go"):]))
	},
		Entry("in a package, once for two platforms", func(program string) map[string]string {
			return map[string]string{"./packaging": "set -e", "./kubernetes_cpi/cpi-linux-amd64": program, "./kubernetes_cpi/cpi-linux-arm64": program}
		}),
		Entry("in an image", func(program string) map[string]string {
			return map[string]string{"./kubernetes_cpi/node-image/blobs/sha256/01": gzipTar(map[string]string{"bosh-node": program})}
		}),
	)

	DescribeTable("fails for a tarball that is not a release of the CPI",
		func(message string, files map[string]string) {
			_, _, err := releaseComponents(writeRelease(files))
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("without a manifest", "release.MF is missing, or has no release name", nil),
		Entry("without programs", "the release has no program", map[string]string{"release.MF": manifest}),
		Entry("with a damaged archive", "packages/a.tgz: ", map[string]string{"release.MF": manifest, "packages/a.tgz": "\x1f\x8b"}),
	)
})
