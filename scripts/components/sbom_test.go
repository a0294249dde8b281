package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("An SBOM", func() {
	It("names the program, its sum, and what it is made of with versions and licenses", func() {
		folder := GinkgoT().TempDir()
		program, path := filepath.Join(folder, "cpi"), filepath.Join(folder, "cpi.cdx.json")
		Expect(os.WriteFile(program, []byte("program"), 0o600)).To(Succeed())
		info := &buildinfo.BuildInfo{Main: debug.Module{Version: "1.2.3"}}
		Expect(writeSBOM(path, program, info, []component{{path: "example.com/a", version: "v1.0.0", sum: "h1:sum", licenses: []string{"MIT"}}})).To(Succeed())
		content, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		var said struct {
			SpecVersion string
			Metadata    struct {
				Component struct {
					Name, Version string
					Hashes        []struct{ Content string }
				}
			}
			Components []struct{ Name, Purl string }
		}
		Expect(json.Unmarshal(content, &said)).To(Succeed())
		Expect(said.SpecVersion).To(Equal("1.6"))
		Expect(said.Metadata.Component.Name + " " + said.Metadata.Component.Version).To(Equal("cpi 1.2.3"))
		Expect(said.Components[0].Purl).To(Equal("pkg:golang/example.com/a@v1.0.0"))
		Expect(said.Metadata.Component.Hashes).To(ConsistOf(HaveField("Content", "1310ca2c8932dbd118668bd97442558a3e1f546b5e15c69699dfbd6024f548d8")))
	})
})
