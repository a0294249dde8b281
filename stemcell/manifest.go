package stemcell

import (
	"errors"

	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/kube/document"
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
		raw, err := yaml.YAMLToJSON(content)
		if err != nil {
			return manifest, invalid("stemcell.MF: %w", err)
		}
		err = document.Unmarshal("stemcell.MF", raw, &manifest)
		return manifest, invalid("%w", err)
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
