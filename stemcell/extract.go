package stemcell

import (
	"archive/tar"
	"crypto/sha1" // BOSH's stemcell format has it
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip" // see rootfs.go
	"sigs.k8s.io/yaml"
)

// MinAPIVersion is the oldest version of the agent's API that this CPI can work with: from 2 on, the
// agent is told of a disk when it is attached, instead of reading of it in its settings at boot.
const MinAPIVersion = 2

// Manifest is a stemcell.MF: https://bosh.io/docs/build-stemcell/
type Manifest struct {
	Name            string     `json:"name"`
	Version         string     `json:"version"`
	APIVersion      int        `json:"api_version"`
	SHA1            string     `json:"sha1"`
	OperatingSystem string     `json:"operating_system"`
	StemcellFormats []string   `json:"stemcell_formats"`
	CloudProperties Properties `json:"cloud_properties"`
}

// ParseManifest reads a stemcell.MF and checks it. The error names the field.
func ParseManifest(content []byte) (Manifest, error) {
	var manifest Manifest
	var raw struct {
		Version any `json:"version"`
	}
	if err := errors.Join(yaml.Unmarshal(content, &raw), yaml.Unmarshal(content, &manifest)); err != nil {
		return manifest, invalid("stemcell.MF: %w", err)
	}
	if _, text := raw.Version.(string); !text && raw.Version != nil {
		return manifest, invalid("stemcell.MF: version is a number, which loses its zeros: put it in quotes")
	}
	for _, field := range []struct{ name, value string }{
		{"name", manifest.Name}, {"version", manifest.Version}, {"sha1", manifest.SHA1}, {"operating_system", manifest.OperatingSystem},
	} {
		if field.value == "" {
			return manifest, invalid("stemcell.MF: %s is missing", field.name)
		}
	}
	return manifest, CheckAPIVersion(manifest.APIVersion)
}

// CheckAPIVersion refuses a stemcell whose agent is too old; a stemcell.MF without api_version has 1.
func CheckAPIVersion(version int) error {
	if version < MinAPIVersion {
		return invalid("the stemcell has api_version %d, and this CPI needs at least %d, because its disks are attached to running machines: "+
			"use a newer stemcell (stemcell.MF: api_version)", max(version, 1), MinAPIVersion)
	}
	return nil
}

// Extract reads a stemcell tarball: its manifest, and its image into the folder. It checks the image
// against the manifest's sha1, and returns the path of the extracted image.
func Extract(tarball, folder string) (Manifest, string, error) {
	manifest, image, err := unpackTarball(tarball, folder)
	if err != nil {
		return manifest, "", err
	}
	if err := verifyChecksum(image, manifest.SHA1); err != nil {
		return manifest, "", err
	}
	if manifest.CloudProperties.IsLight() {
		return manifest, "", invalid("%s is a light stemcell: its image is in a registry already, upload it as it is", tarball)
	}
	heavy := func(format string) bool { return format == "warden-tar" || format == "general-tar" }
	if len(manifest.StemcellFormats) > 0 && !slices.ContainsFunc(manifest.StemcellFormats, heavy) {
		return manifest, "", invalid("stemcell.MF: stemcell_formats are %s, but a container needs a stemcell of format "+
			"warden-tar or general-tar (bosh-warden-boshlite-…)", strings.Join(manifest.StemcellFormats, ", "))
	}
	return manifest, image, nil
}

func unpackTarball(tarball, folder string) (manifest Manifest, image string, err error) {
	file, err := os.Open(tarball)
	if err != nil {
		return manifest, "", err
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		return manifest, "", invalid("%s is not a stemcell tarball (gzipped tar): %w", tarball, err)
	}
	archive, described := tar.NewReader(plain), false
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
			described = true
		case "image":
			image = filepath.Join(folder, "image")
			err := writeFile(image, archive)
			if errors.Is(err, io.ErrUnexpectedEOF) {
				return manifest, "", invalid("%s is damaged: %w", tarball, err)
			}
			if err != nil {
				return manifest, "", fmt.Errorf("extract the image of %s: %w", tarball, err)
			}
		}
	}
	switch {
	case !described:
		return manifest, "", invalid("%s holds no stemcell.MF", tarball)
	case image == "":
		return manifest, "", invalid("%s holds no image", tarball)
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

// verifyChecksum compares the file with a BOSH digest: a SHA-1, or several digests joined by semicolons, each
// with its algorithm before a colon.
func verifyChecksum(path, expected string) error {
	for digest := range strings.SplitSeq(expected, ";") {
		algorithm, value, prefixed := strings.Cut(digest, ":")
		if !prefixed {
			algorithm, value = "sha1", digest
		}
		makers := map[string]func() hash.Hash{"sha1": sha1.New, "sha256": sha256.New, "sha512": sha512.New}
		maker, known := makers[algorithm]
		if !known {
			return invalid("stemcell.MF: sha1 has a digest of kind %q, which is none of sha1, sha256, sha512", algorithm)
		}
		sum := maker()
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(sum, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
		if got := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(got, value) {
			return invalid("stemcell.MF: %s of the image is %s, and the manifest says %s: download the stemcell again", algorithm, got, value)
		}
	}
	return nil
}
