package stemcell

import (
	"archive/tar"
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
	"sigs.k8s.io/yaml"
)

// MinAPIVersion is the oldest supported api_version of stemcells. Since version 2, the director announces attached disks to the agent.
// Older agents read their disks from their settings at boot.
const MinAPIVersion = 2

// Manifest is the content of stemcell.MF: https://bosh.io/docs/build-stemcell/
type Manifest struct {
	Name            string     `json:"name"`
	Version         string     `json:"version"`
	APIVersion      int        `json:"api_version"`
	SHA1            string     `json:"sha1"`
	OperatingSystem string     `json:"operating_system"`
	StemcellFormats []string   `json:"stemcell_formats"`
	CloudProperties Properties `json:"cloud_properties"`
}

// ParseManifest decodes and validates stemcell.MF. The error names the invalid field.
func ParseManifest(content []byte) (Manifest, error) {
	var manifest Manifest
	var raw struct {
		Version any `json:"version"`
	}
	if err := errors.Join(yaml.Unmarshal(content, &raw), yaml.Unmarshal(content, &manifest)); err != nil {
		return manifest, invalid("stemcell.MF: %w", err)
	}
	if _, isString := raw.Version.(string); !isString && raw.Version != nil {
		return manifest, invalid("stemcell.MF: version is a number, which loses trailing zeros; quote it")
	}
	for _, field := range []struct{ name, value string }{
		{"name", manifest.Name}, {"version", manifest.Version}, {"sha1", manifest.SHA1}, {"operating_system", manifest.OperatingSystem},
	} {
		if field.value == "" {
			return manifest, invalid("stemcell.MF: %s is missing", field.name)
		}
	}
	return manifest, CheckAPIVersion(&manifest.APIVersion)
}

// CheckAPIVersion rejects an api_version older than MinAPIVersion. 0 means that stemcell.MF has no api_version, which is the same as 1. It
// accepts nil, an unknown version.
func CheckAPIVersion(version *int) error {
	if version != nil && *version < MinAPIVersion {
		return invalid("stemcell.MF: api_version %d is not supported, because this CPI attaches disks to running VMs; "+
			"use a stemcell with api_version %d or later", max(*version, 1), MinAPIVersion)
	}
	return nil
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
