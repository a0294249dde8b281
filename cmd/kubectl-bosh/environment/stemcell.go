package environment

import (
	"archive/tar"
	"cmp"
	"io"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/klauspost/compress/gzip"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/stemcell"
)

// compiledFor matches the operating system in the file name of a compiled release or of a stemcell, for example
// bosh-283.1.6-ubuntu-noble-1.484.tgz.
var compiledFor = regexp.MustCompile(`-(ubuntu-[a-z]+)(-[0-9.]+)?\.tgz$`)

// StemcellImage returns the image reference of the stemcell, or "" if it is unknown: the stemcell is not a local file, or not a light one.
func (p *Plan) StemcellImage() string {
	properties := readStemcellManifest(p.Vars.GetString("stemcell_url")).CloudProperties
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
	plain, err := gzip.NewReader(file)
	if err != nil {
		return manifest
	}
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if err != nil {
			return manifest
		}
		if path.Clean(header.Name) == "stemcell.MF" {
			content, _ := io.ReadAll(io.LimitReader(archive, 1<<20))
			_ = yaml.Unmarshal(content, &manifest)
			return manifest
		}
	}
}
