package environment

import (
	"archive/tar"
	"cmp"
	"fmt"
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

// CheckSeries returns an error if the manifest has releases that are compiled for another operating system than the stemcell's: their
// programs may not start, and the BOSH CLI does not compare. manifest is the output of InterpolateCommand.
func (p *Plan) CheckSeries(manifest []byte) error {
	series := stemcellSeries(p.Vars.GetString("stemcell_url"))
	if series == "" {
		return nil
	}
	var content struct {
		Releases []struct{ Name, URL string }
	}
	if err := yaml.Unmarshal(manifest, &content); err != nil {
		return fmt.Errorf("%s: %w", p.Manifest, err)
	}
	var others []string
	other := ""
	for _, release := range content.Releases {
		if compiled := seriesInName(release.URL); compiled != "" && compiled != series {
			others, other = append(others, release.Name), compiled
		}
	}
	if len(others) == 0 {
		return nil
	}
	return fmt.Errorf("the stemcell has operating system %s, but these releases of %s are compiled for %s: %s; use a stemcell for %[3]s, "+
		"or add ops files of bosh-deployment that replace them, for example --ops-file bosh-deployment/misc/source-releases/bosh.yml",
		series, p.Manifest, other, strings.Join(others, ", "))
}

// CheckStorageClasses returns an error if a disk pool of the manifest requires the default StorageClass, and the cluster has none: the
// director's disk would stay unbound until create-env times out. manifest is the output of InterpolateCommand.
func (p *Plan) CheckStorageClasses(manifest []byte) error {
	var content struct {
		DiskPools []struct {
			Name            string
			CloudProperties struct {
				StorageClass string `json:"storage_class"`
			} `json:"cloud_properties"`
		} `json:"disk_pools"`
	}
	if err := yaml.Unmarshal(manifest, &content); err != nil {
		return fmt.Errorf("%s: %w", p.Manifest, err)
	}
	for _, pool := range content.DiskPools {
		if p.inspection.NoDefaultStorageClass && pool.CloudProperties.StorageClass == "" {
			return fmt.Errorf("the cluster has no default StorageClass, and disk pool %s of %s sets none; annotate a StorageClass with "+
				"storageclass.kubernetes.io/is-default-class=true, or set cloud_properties.storage_class of the pool with an --ops-file",
				pool.Name, p.Manifest)
		}
	}
	return nil
}

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
