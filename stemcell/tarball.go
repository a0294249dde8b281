package stemcell

import (
	"archive/tar"
	"crypto/sha1" // BOSH's stemcell format wants it
	"encoding/hex"
	"fmt"
	"os"

	"github.com/klauspost/compress/gzip" // see rootfs.go
)

// LightTarball is a stemcell tarball that brings no image but names one in a registry.
type LightTarball struct {
	Name            string // for example bosh-kubernetes-ubuntu-jammy
	Version         string
	OperatingSystem string
	Repository      string // where the image is
	Digest          string // sha256:…
	APIVersion      int    // of the agent in it, at least MinAPIVersion
}

const manifestTemplate = `---
name: %q
version: %q
api_version: %d
bosh_protocol: "1"
sha1: %s
operating_system: %q
stemcell_formats: [docker-light]
cloud_properties:
  name: %q
  version: %q
  infrastructure: kubernetes
  image_reference: %q
  digest: %q
`

// Write makes the tarball: stemcell.MF and an empty image.
func (t LightTarball) Write(path string) (err error) {
	file, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
		if err == nil {
			err = os.Rename(path+".new", path)
		}
	}()
	zipped := gzip.NewWriter(file)
	archive := tar.NewWriter(zipped)
	nothing := sha1.Sum(nil) // see above
	content := fmt.Appendf(nil, manifestTemplate, t.Name, t.Version, t.APIVersion, hex.EncodeToString(nothing[:]), t.OperatingSystem,
		t.Name, t.Version, t.Repository, t.Digest)
	for _, part := range []struct {
		name    string
		content []byte
	}{{"stemcell.MF", content}, {"image", nil}} {
		if err := archive.WriteHeader(&tar.Header{Name: part.name, Mode: 0o644, Size: int64(len(part.content))}); err != nil {
			return err
		}
		if _, err := archive.Write(part.content); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return zipped.Close()
}
