package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/klauspost/compress/gzip"
	"sigs.k8s.io/yaml"
)

// toolchainArchive matches the file name of a Go toolchain in the package golang: version and platform.
var toolchainArchive = regexp.MustCompile(`^(go\d[\w.]*)\.([a-z0-9]+-[a-z0-9]+)\.tar\.gz$`)

// releaseContent is the content of a BOSH release as described by its SBOM.
type releaseContent struct {
	manifest   struct{ Name, Version string }
	toolchains []component
	modules    []component
	sums       map[string]string // checksums in go.sum, by PATH@VERSION
	goVersion  string
}

// releaseComponents reads the tarball of a BOSH release. It returns the release and its components: the Go toolchains that compile the CPI,
// the standard library, and the modules that are vendored with the CPI's sources.
func releaseComponents(tarball string) (subject, []component, error) {
	content, err := readRelease(tarball)
	if err != nil {
		return subject{}, nil, fmt.Errorf("%s: %w", tarball, err)
	}
	std, err := standardLibrary(content.goVersion)
	if err != nil {
		return subject{}, nil, err
	}
	std.boshPackage = "golang"
	components := []component{std}
	for _, toolchain := range content.toolchains {
		toolchain.licenses = std.licenses
		components = append(components, toolchain)
	}
	for _, module := range content.modules {
		module.sum = content.sums[module.path+"@"+module.version]
		if err := module.readModule(); err != nil {
			return subject{}, nil, err
		}
		components = append(components, module)
	}
	release := subject{path: tarball, name: content.manifest.Name, version: content.manifest.Version}
	release.purl = "pkg:generic/" + release.name + "@" + release.version
	return release, components, nil
}

func readRelease(tarball string) (*releaseContent, error) {
	file, err := os.Open(tarball)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content := &releaseContent{sums: map[string]string{}}
	err = forEachFile(file, func(name string, entry io.Reader) error {
		switch name {
		case "release.MF":
			text, err := io.ReadAll(entry)
			if err != nil {
				return err
			}
			return yaml.Unmarshal(text, &content.manifest)
		case "packages/golang.tgz":
			return forEachFile(entry, content.addToolchain)
		case "packages/kubernetes_cpi.tgz":
			return forEachFile(entry, content.addSources)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case content.manifest.Name == "":
		return nil, errors.New("release.MF is missing, or has no release name")
	case len(content.toolchains) == 0:
		return nil, errors.New("package golang has no Go toolchain")
	case len(content.modules) == 0:
		return nil, errors.New("package kubernetes_cpi has no vendored modules")
	}
	return content, nil
}

// addToolchain adds a file of the package golang.
func (r *releaseContent) addToolchain(name string, file io.Reader) error {
	match := toolchainArchive.FindStringSubmatch(path.Base(name))
	if match == nil {
		return nil
	}
	if r.goVersion != "" && r.goVersion != match[1] {
		return fmt.Errorf("package golang has toolchains of %s and %s", r.goVersion, match[1])
	}
	r.goVersion = match[1]
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	r.toolchains = append(r.toolchains, component{
		path: "golang.org/toolchain", version: "v0.0.1-" + match[1] + "." + match[2],
		sha256: hex.EncodeToString(sum.Sum(nil)), boshPackage: "golang",
	})
	return nil
}

// addSources adds a file of the package kubernetes_cpi.
func (r *releaseContent) addSources(name string, file io.Reader) error {
	if name != "kubernetes_cpi/vendor/modules.txt" && name != "kubernetes_cpi/go.sum" {
		return nil
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	if path.Base(name) == "modules.txt" {
		r.modules = parseVendoredModules(string(text))
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 {
			r.sums[fields[0]+"@"+fields[1]] = fields[2]
		}
	}
	return nil
}

// parseVendoredModules returns the modules in a modules.txt that have packages in the vendor directory. The file also lists modules that
// go.mod requires but that have no vendored packages.
func parseVendoredModules(list string) []component {
	var modules []component
	var current component
	for line := range strings.Lines(list) {
		switch fields := strings.Fields(line); {
		case len(fields) == 0 || fields[0] == "##":
		case fields[0] == "#": // # PATH VERSION, or for a replacement # PATH [VERSION] => PATH VERSION
			current = component{}
			if len(fields) >= 3 {
				current = component{path: fields[len(fields)-2], version: fields[len(fields)-1], boshPackage: "kubernetes_cpi"}
			}
		case current.path != "":
			modules = append(modules, current)
			current = component{}
		}
	}
	return modules
}

// forEachFile calls visit for each regular file in a gzipped tar archive.
func forEachFile(archive io.Reader, visit func(name string, file io.Reader) error) error {
	compressed, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	files := tar.NewReader(compressed)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := visit(path.Clean(header.Name), files); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}
