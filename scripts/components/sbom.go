package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// subject is the file that an SBOM describes.
type subject struct {
	path, name, version string
	purl                string
}

// programSubject returns a program as the subject of its SBOM.
func programSubject(path string, info *buildinfo.BuildInfo) subject {
	purl := golangPURL(info.Main.Path, info.Main.Version)
	if subpath, ok := strings.CutPrefix(info.Path, info.Main.Path+"/"); ok {
		purl += "#" + subpath
	}
	return subject{path: path, name: filepath.Base(path), version: info.Main.Version, purl: purl}
}

// golangPURL returns the package URL of a Go module (https://github.com/package-url/purl-spec). Like Go and the vulnerability databases, it
// keeps the case of the path.
func golangPURL(path, version string) string {
	return "pkg:golang/" + path + "@" + url.QueryEscape(version)
}

// writeSBOM writes the components of the subject to a file in CycloneDX's format.
func writeSBOM(path string, target subject, components []component) error {
	digest, err := sha256Of(target.path)
	if err != nil {
		return err
	}
	bom := cyclonedx.NewBOM()
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceOID, digest).URN()
	hash := hex.EncodeToString(digest)
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: hash, Type: cyclonedx.ComponentTypeApplication, Name: target.name, Version: target.version, PackageURL: target.purl,
		Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hash}},
	}}
	var entries []cyclonedx.Component
	for _, component := range components {
		entries = append(entries, component.cycloneDX())
	}
	bom.Components = &entries
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	// Some tools do not support the latest version of the format.
	encoder := cyclonedx.NewBOMEncoder(file, cyclonedx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.EncodeVersion(bom, cyclonedx.SpecVersion1_6); err != nil {
		return err
	}
	return file.Close()
}

func sha256Of(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	return sum.Sum(nil), err
}

func (c component) cycloneDX() cyclonedx.Component {
	licenses := cyclonedx.Licenses{}
	for _, id := range c.licenses {
		licenses = append(licenses, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: id}})
	}
	purl := golangPURL(c.path, c.version)
	described := cyclonedx.Component{
		BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: c.path, Version: c.version, PackageURL: purl, Licenses: &licenses,
	}
	if c.sum != "" {
		described.Properties = &[]cyclonedx.Property{{Name: "go.sum", Value: c.sum}}
	}
	return described
}
