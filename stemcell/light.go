package stemcell

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
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

// lookupTimeout limits the lookup in the registry, so that upload-stemcell does not hang if the network drops packets.
const lookupTimeout = 10 * time.Second

// Pin looks up the digest of a light stemcell's image in the registry or its mirror. It returns the CID, which consists of the image
// reference with the digest, and of the image's architectures.
//
// If the registry does not have the image, Pin returns ErrNotFound. If the lookup fails for another reason, Pin logs a warning and returns
// the complete reference, because the nodes may still be able to pull the image.
func (s Store) Pin(ctx context.Context, properties Properties) (string, error) {
	reference, err := properties.Reference()
	if err != nil {
		return "", err
	}
	mirrored, err := s.applyMirror(reference)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	descriptor, err := remote.Head(mirrored, s.readOptions(ctx, mirrored)...)
	err = explain("look up "+mirrored.String(), mirrored.Context().RegistryStr(), err)
	switch {
	case errors.Is(err, ErrNotFound):
		return "", fmt.Errorf("%w; push the image there, or correct the stemcell's cloud_properties", err)
	case err != nil:
		s.Log.Warn("cannot check that the image exists in the registry; VMs fail to start if it does not",
			"image", mirrored.String(), "error", err.Error())
		return reference.Name(), nil
	}
	pinned := mirrored.Context().Digest(descriptor.Digest.String())
	platforms, err := listPlatforms(pinned, s.readOptions(ctx, mirrored)...)
	if isConnectionLost(err) { // the library does not retry if a response is incomplete
		platforms, err = listPlatforms(pinned, s.readOptions(ctx, mirrored)...)
	}
	if err != nil {
		s.Log.Warn("the registry does not report the architectures of the image; its VMs may be scheduled on nodes of other architectures",
			"image", mirrored.String(), "error", err.Error())
	}
	return appendArchitectures(reference.Context().Digest(descriptor.Digest.String()).Name(), platforms...), nil
}
