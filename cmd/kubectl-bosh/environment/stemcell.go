package environment

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"os"
	"path"
	"regexp"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/stemcell"
)

// compiledFor matches the operating system in the file name of a compiled release or of a stemcell, for example
// bosh-283.1.6-ubuntu-noble-1.484.tgz.
var compiledFor = regexp.MustCompile(`-(ubuntu-[a-z]+)(-[0-9.]+)?\.tgz$`)

// maxTextBytes is a size that neither a light stemcell, which contains only text, nor the index of an image exceeds.
const maxTextBytes = 1 << 20

// downloadTimeout limits the time for a light stemcell, which has a few kB.
const downloadTimeout = 30 * time.Second

// StemcellImage returns the image reference of the stemcell, or "" if it is unknown: the stemcell is not a light one, or it is at a URL
// from which it cannot be downloaded, or without a SHA256.
func (p *Plan) StemcellImage(ctx context.Context) string {
	url := p.Vars.GetString("stemcell_url")
	properties := readStemcellManifest(url).CloudProperties
	if isURL(url) {
		ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
		defer cancel()
		content, _ := download(ctx, PublishedFile{url, p.Vars.GetString("stemcell_sha1")}, maxTextBytes)
		properties = parseStemcellManifest(bytes.NewReader(content)).CloudProperties
	}
	if !properties.IsLight() {
		return ""
	}
	reference, err := properties.Reference()
	if err != nil {
		return "" // create-env reports it
	}
	return reference.Name()
}

// stemcellSeries returns the operating system of the stemcell: from its stemcell.MF, or from the name in its URL. It returns "" if the
// operating system is unknown.
func stemcellSeries(url string) string {
	return cmp.Or(readStemcellManifest(url).OperatingSystem, seriesInName(url))
}

// seriesInName returns the operating system in the file name of a compiled release or a stemcell, or "" if it has none.
func seriesInName(url string) string {
	if match := compiledFor.FindStringSubmatch(url); len(match) > 1 {
		return match[1]
	}
	return ""
}

// readStemcellManifest returns the stemcell.MF of the tarball with this file URL. The result is empty for other URLs, and for a file that
// is not a stemcell, which the BOSH CLI reports.
func readStemcellManifest(url string) (manifest stemcell.Manifest) {
	tarball, isFile := strings.CutPrefix(url, "file://")
	if !isFile {
		return manifest
	}
	file, err := os.Open(tarball)
	if err != nil {
		return manifest
	}
	defer file.Close()
	return parseStemcellManifest(file)
}

func parseStemcellManifest(tarball io.Reader) (manifest stemcell.Manifest) {
	content, _ := io.ReadAll(io.LimitReader(findFile(tarball, "stemcell.MF"), maxTextBytes))
	_ = yaml.Unmarshal(content, &manifest)
	return manifest
}

// NodeImage returns the reference of the image of bosh-node in the CPI release, or "" if it is unknown: the release is neither the
// published one nor a local file.
func (p *Plan) NodeImage() string {
	url := p.Vars.GetString("kubernetes_cpi_url")
	if url == p.options.PublishedRelease.URL {
		return p.options.PublishedNodeImage
	}
	path, isFile := strings.CutPrefix(url, "file://")
	if !isFile {
		return ""
	}
	reference := readNodeImage(path, "packages/kubernetes_cpi.tgz", "kubernetes_cpi/node-image/index.json")
	return cmp.Or(reference, readNodeImage(path, "compiled_packages/kubernetes_cpi.tgz", "node-image/index.json"))
}

// readNodeImage returns the reference of the image with this index in a package of the release.
func readNodeImage(release, packageTarball, index string) string {
	file, err := os.Open(release)
	if err != nil {
		return ""
	}
	defer file.Close()
	content, _ := io.ReadAll(io.LimitReader(findFile(findFile(file, packageTarball), index), maxTextBytes))
	var images v1.IndexManifest
	if json.Unmarshal(content, &images) != nil || len(images.Manifests) != 1 {
		return ""
	}
	return images.Manifests[0].Annotations[stemcell.ImageNameAnnotation]
}

// findFile returns the content of a file in a gzipped tar archive, which is empty if the archive or the file is missing.
func findFile(archive io.Reader, name string) io.Reader {
	missing := strings.NewReader("")
	plain, err := gzip.NewReader(archive)
	if err != nil {
		return missing
	}
	for files := tar.NewReader(plain); ; {
		header, err := files.Next()
		if err != nil {
			return missing
		}
		if path.Clean(header.Name) == name {
			return files
		}
	}
}
