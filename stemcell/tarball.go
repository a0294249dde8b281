package stemcell

import (
	"archive/tar"
	"bytes"
	"crypto/sha1" // required by BOSH's stemcell format
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

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

// Extract extracts the image of a stemcell tarball to dir, and verifies it with the manifest's sha1. It returns the manifest and the path
// of the image.
func Extract(tarball, dir string) (Manifest, string, error) {
	manifest, image, err := unpackTarball(tarball, dir)
	if err != nil {
		return manifest, "", err
	}
	if err := verifyChecksum(image, manifest.SHA1); err != nil {
		return manifest, "", err
	}
	if manifest.CloudProperties.IsLight() {
		return manifest, "", invalid("%s is already a light stemcell; upload it without conversion", tarball)
	}
	isHeavy := func(format string) bool { return format == "warden-tar" || format == "general-tar" }
	if len(manifest.StemcellFormats) > 0 && !slices.ContainsFunc(manifest.StemcellFormats, isHeavy) {
		return manifest, "", invalid("stemcell.MF: stemcell_formats %s are not supported; use a stemcell with format "+
			"warden-tar or general-tar (bosh-warden-boshlite-…)", strings.Join(manifest.StemcellFormats, ", "))
	}
	return manifest, image, nil
}

func unpackTarball(tarball, dir string) (manifest Manifest, image string, err error) {
	file, err := os.Open(tarball)
	if err != nil {
		return manifest, "", err
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		return manifest, "", invalid("%s is not a gzipped tar archive: %w", tarball, err)
	}
	archive, hasManifest := tar.NewReader(plain), false
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return manifest, "", invalid("%s is damaged: %w", tarball, err)
		}
		switch path.Clean(header.Name) {
		case "stemcell.MF":
			content, err := io.ReadAll(io.LimitReader(archive, 1<<20))
			if err != nil {
				return manifest, "", invalid("%s is damaged: %w", tarball, err)
			}
			if manifest, err = ParseManifest(content); err != nil {
				return manifest, "", fmt.Errorf("%s: %w", tarball, err)
			}
			hasManifest = true
		case "image":
			image = filepath.Join(dir, "image")
			err := writeFile(image, archive)
			var fileErr *fs.PathError // of both files; errors of their content have other types
			switch {
			case errors.As(err, &fileErr):
				return manifest, "", fmt.Errorf("cannot extract the image of %s: %w", tarball, err)
			case err != nil:
				return manifest, "", invalid("%s is damaged: %w", tarball, err)
			}
		}
	}
	switch {
	case !hasManifest:
		return manifest, "", invalid("%s has no stemcell.MF", tarball)
	case image == "":
		return manifest, "", invalid("%s has no image", tarball)
	}
	return manifest, image, nil
}

func writeFile(path string, content io.Reader) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// verifyChecksum compares the file with a BOSH digest: a SHA-1 digest, or a semicolon-separated list of digests with their algorithms, such
// as sha256:DIGEST.
func verifyChecksum(path, expected string) error {
	for digest := range strings.SplitSeq(expected, ";") {
		algorithm, value, prefixed := strings.Cut(digest, ":")
		if !prefixed {
			algorithm, value = "sha1", digest
		}
		algorithms := map[string]func() hash.Hash{"sha1": sha1.New, "sha256": sha256.New, "sha512": sha512.New}
		newHash, known := algorithms[algorithm]
		if !known {
			return invalid("stemcell.MF: digest algorithm %q in sha1 is not valid; use sha1, sha256 or sha512", algorithm)
		}
		sum := newHash()
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(sum, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
		if actual := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(actual, value) {
			return invalid("stemcell.MF: %s of the image is %s instead of %s; download the stemcell again", algorithm, actual, value)
		}
	}
	return nil
}
