package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"os"
	"path/filepath"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// writeSBOM writes what the program is made of, in CycloneDX's form.
func writeSBOM(path, program string, info *buildinfo.BuildInfo, used []component) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	bom := cyclonedx.NewBOM()
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceOID, sum[:]).URN()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: digest, Type: cyclonedx.ComponentTypeApplication, Name: filepath.Base(program), Version: info.Main.Version,
		Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: digest}},
	}}
	var components []cyclonedx.Component
	for _, each := range used {
		components = append(components, each.described())
	}
	bom.Components = &components
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	// Not the latest version of the form, which not all who read it know.
	encoder := cyclonedx.NewBOMEncoder(file, cyclonedx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.EncodeVersion(bom, cyclonedx.SpecVersion1_6); err != nil {
		return err
	}
	return file.Close()
}

func (c component) described() cyclonedx.Component {
	licenses := cyclonedx.Licenses{}
	for _, id := range c.licenses {
		licenses = append(licenses, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: id}})
	}
	purl := "pkg:golang/" + c.path + "@" + c.version
	described := cyclonedx.Component{
		BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: c.path, Version: c.version, PackageURL: purl, Licenses: &licenses,
	}
	if c.sum != "" {
		described.Properties = &[]cyclonedx.Property{{Name: "go.sum", Value: c.sum}}
	}
	return described
}
