package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"

	"github.com/klauspost/compress/gzip"
	"sigs.k8s.io/yaml"
)

// releaseContent is the content of a BOSH release as described by its SBOM.
type releaseContent struct {
	manifest   struct{ Name, Version string }
	components map[string]component // of all programs, by PATH@VERSION
}

// releaseComponents reads the tarball of a BOSH release. It returns the release, and the components of its programs and images.
func releaseComponents(tarball string) (subject, []component, error) {
	file, err := os.Open(tarball)
	if err != nil {
		return subject{}, nil, err
	}
	defer file.Close()
	content := releaseContent{components: map[string]component{}}
	switch err := forEachFile(file, content.add); {
	case err != nil:
		return subject{}, nil, fmt.Errorf("%s: %w", tarball, err)
	case content.manifest.Name == "":
		return subject{}, nil, fmt.Errorf("%s: release.MF is missing, or has no release name", tarball)
	case len(content.components) == 0:
		return subject{}, nil, fmt.Errorf("%s: the release has no program", tarball)
	}
	release := subject{path: tarball, name: content.manifest.Name, version: content.manifest.Version}
	release.purl = "pkg:generic/" + release.name + "@" + release.version
	var components []component
	for _, name := range slices.Sorted(maps.Keys(content.components)) {
		components = append(components, content.components[name])
	}
	return release, components, nil
}

// add adds a file of the release, or of an archive in it: a package, or a layer of an image.
func (r *releaseContent) add(name string, file io.Reader) error {
	content, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	if name == "release.MF" {
		return yaml.Unmarshal(content, &r.manifest)
	}
	if bytes.HasPrefix(content, []byte{0x1f, 0x8b}) { // gzip
		return forEachFile(bytes.NewReader(content), r.add)
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return nil //nolint:nilerr // not a program
	}
	components, err := componentsOf(info)
	for _, component := range components {
		r.components[component.path+"@"+component.version] = component
	}
	return err
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
