package stemcell

import (
	"archive/tar"
	"crypto/sha1" // required by BOSH's stemcell format
	"encoding/hex"
	"fmt"
	"os"

	"github.com/klauspost/compress/gzip" // see rootfs.go
)

// LightTarball is the tarball of a light stemcell, which refers to an image in a registry.
type LightTarball struct {
	Name            string // for example bosh-kubernetes-ubuntu-jammy
	Version         string
	OperatingSystem string
	Repository      string // the image's repository
	Digest          string // the image's digest: sha256:…
	APIVersion      int    // the agent's api_version, at least MinAPIVersion
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

// Write writes the tarball, which contains stemcell.MF and an empty image.
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
	compressed := gzip.NewWriter(file)
	archive := tar.NewWriter(compressed)
	imageSum := sha1.Sum(nil)
	manifest := fmt.Appendf(nil, manifestTemplate, t.Name, t.Version, t.APIVersion, hex.EncodeToString(imageSum[:]), t.OperatingSystem,
		t.Name, t.Version, t.Repository, t.Digest)
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
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}
