package stemcell

import (
	"archive/tar"
	"bytes"
	"crypto/sha1" // required by BOSH's stemcell format
	"errors"
	"fmt"
	"os"

	"github.com/klauspost/compress/gzip" // see rootfs.go
)

const manifestTemplate = `---
name: %q
version: %q
api_version: %d
bosh_protocol: "1"
sha1: %x
operating_system: %q
stemcell_formats: [docker-light]
cloud_properties:
  name: %q
  version: %q
  infrastructure: kubernetes
  image_reference: %q
  digest: %q
`

// LightFileName returns the usual name of the tarball of a light stemcell.
func (m Manifest) LightFileName() string {
	return fmt.Sprintf("light-bosh-stemcell-%s-kubernetes-%s.tgz", m.Version, m.OperatingSystem)
}

// WriteLight writes the tarball of a light stemcell, which contains stemcell.MF and an empty image. The cloud properties refer to the
// image with ImageReference and Digest.
func (m Manifest) WriteLight(path string) error {
	var tarball bytes.Buffer
	compressed := gzip.NewWriter(&tarball)
	archive := tar.NewWriter(compressed)
	manifest := fmt.Appendf(nil, manifestTemplate, m.Name, m.Version, m.APIVersion, sha1.Sum(nil), m.OperatingSystem,
		m.Name, m.Version, m.CloudProperties.ImageReference, m.CloudProperties.Digest)
	for _, entry := range []struct {
		name    string
		content []byte
	}{{"stemcell.MF", manifest}, {"image", nil}} {
		if err := archive.WriteHeader(&tar.Header{Name: entry.name, Mode: 0o644, Size: int64(len(entry.content))}); err != nil {
			return err
		}
		if _, err := archive.Write(entry.content); err != nil {
			return err
		}
	}
	if err := errors.Join(archive.Close(), compressed.Close()); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", tarball.Bytes(), 0o666); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
