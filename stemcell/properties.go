package stemcell

import (
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// Formats returns the stemcell formats that create_stemcell accepts, and that info reports.
func Formats() []string {
	return []string{"kubernetes-light", "docker-light", "warden-tar", "general-tar"}
}

// Properties are the cloud_properties in stemcell.MF that identify the image. Other keys (infrastructure, architecture, …) are for the
// director and are ignored.
type Properties struct {
	// Name and Version are the stemcell's.
	Name    string `json:"name"`
	Version string `json:"version"`
	// Image is the image reference of an older Kubernetes stemcell.
	Image string `json:"image"`
	// ImageReference and Digest are the image reference of a docker-light stemcell.
	ImageReference string `json:"image_reference"`
	Digest         string `json:"digest"`
}

// IsLight reports whether the stemcell is light.
func (p Properties) IsLight() bool { return p.Image != "" || p.ImageReference != "" }

// Reference returns the image reference, with the digest if the stemcell has one.
func (p Properties) Reference() (name.Reference, error) {
	key, value := "image_reference", p.ImageReference
	if value == "" {
		key, value = "image", p.Image
	}
	reference, err := name.ParseReference(value)
	if err != nil {
		return nil, invalid("cloud_properties.%s %q is not a valid image reference: %w", key, value, err)
	}
	if scheme, rest, found := strings.Cut(value, "://"); found {
		return nil, invalid("cloud_properties.%s %q is not a valid image reference; remove %s:// before %s", key, value, scheme, rest)
	}
	if p.Digest == "" {
		return reference, nil
	}
	pinned, err := name.NewDigest(reference.Context().Name() + "@" + p.Digest)
	if err != nil {
		return nil, invalid("cloud_properties.digest %q is not a valid digest (sha256:…): %w", p.Digest, err)
	}
	if inReference, ok := reference.(name.Digest); ok && inReference.DigestStr() != pinned.DigestStr() {
		return nil, invalid("cloud_properties.digest %s differs from the digest of cloud_properties.%s %s", p.Digest, key, value)
	}
	return pinned, nil
}
