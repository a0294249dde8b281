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

// moduleVersion returns the version of a module of the test program.
func moduleVersion(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == path {
			return module.Version
		}
	}
	return ""
}

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
	// These modules are also part of the test program: their licenses are in Go's module cache.
	uuid, mod := moduleVersion("github.com/google/uuid"), moduleVersion("golang.org/x/mod")
	sources := "# github.com/google/uuid " + uuid + `
## explicit; go 1.9
github.com/google/uuid
# github.com/onsi/ginkgo/v2 v2.0.0
## explicit; go 1.25
# example.com/replaced v0.0.1 => golang.org/x/mod ` + mod + `
## explicit; go 1.26
example.com/replaced/module
example.com/replaced/semver
`
	writeRelease := func(files map[string]string) string {
		GinkgoHelper()
		tarball := filepath.Join(GinkgoT().TempDir(), "release.tgz")
		Expect(os.WriteFile(tarball, []byte(gzipTar(files)), 0o600)).To(Succeed())
		return tarball
	}
	golang := gzipTar(map[string]string{"./golang/go1.26.8.linux-amd64.tar.gz": "Go", "./golang/go1.26.8.darwin-arm64.tar.gz": "Go", "./packaging": ""})
	cpi := gzipTar(map[string]string{"./kubernetes_cpi/vendor/modules.txt": sources, "./kubernetes_cpi/go.sum": "github.com/google/uuid " + uuid + " h1:sum\n"})

	It("contains the release, its Go toolchains, the standard library and the vendored modules that provide packages", func() {
		tarball := writeRelease(map[string]string{"./release.MF": manifest, "./packages/golang.tgz": golang, "./packages/kubernetes_cpi.tgz": cpi})
		release, components, err := releaseComponents(tarball)
		Expect(err).NotTo(HaveOccurred())
		written := writeAndRead(release, components)
		Expect(written.Metadata.Component.Purl).To(Equal("pkg:generic/bosh-kubernetes-cpi@1.2.3"))
		Expect(written.Metadata.Component.Hashes).To(HaveLen(1))
		Expect(written.purls()).To(ConsistOf(
			"pkg:golang/stdlib@1.26.8",
			"pkg:golang/golang.org/toolchain@v0.0.1-go1.26.8.linux-amd64",
			"pkg:golang/golang.org/toolchain@v0.0.1-go1.26.8.darwin-arm64",
			"pkg:golang/github.com/google/uuid@"+uuid,
			"pkg:golang/golang.org/x/mod@"+mod,
		))
		for _, component := range written.Components {
			Expect(component.Licenses).To(ConsistOf(HaveField("License.ID", "BSD-3-Clause")), component.Name)
			switch component.Name {
			case "golang.org/toolchain":
				Expect(component.Hashes).To(ConsistOf(HaveField("Content", "6cc8519b91584e8bd435d63341e0838a99721948718b1c9c1e9c358c64ba992a")), "the checksum of its archive")
			case "github.com/google/uuid":
				Expect(component.Properties).To(ConsistOf(HaveField("Value", "h1:sum"), HaveField("Value", "kubernetes_cpi")))
			}
		}
	})

	DescribeTable("fails for a tarball that is not a release of the CPI",
		func(message string, files map[string]string) {
			_, _, err := releaseComponents(writeRelease(files))
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("without a manifest", "release.MF is missing, or has no release name", map[string]string{"packages/golang.tgz": golang, "packages/kubernetes_cpi.tgz": cpi}),
		Entry("without a toolchain", "package golang has no Go toolchain", map[string]string{"release.MF": manifest, "packages/kubernetes_cpi.tgz": cpi}),
		Entry("without sources", "package kubernetes_cpi has no vendored modules", map[string]string{"release.MF": manifest, "packages/golang.tgz": golang}),
		Entry("with a package that is not an archive", "packages/golang.tgz: ", map[string]string{"release.MF": manifest, "packages/golang.tgz": "Go"}),
	)
})
