package stemcell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Formats are the stemcell formats that create_stemcell accepts, as info reports them.
func Formats() []string {
	return []string{"kubernetes-light", "docker-light", "warden-tar", "general-tar"}
}

// Properties are the cloud_properties of a stemcell.MF that say something about its image. Others
// (infrastructure, architecture …) are the director's and are ignored.
type Properties struct {
	// Name and Version are the stemcell's own.
	Name    string `json:"name"`
	Version string `json:"version"`
	// Image is the reference in older Kubernetes stemcells.
	Image string `json:"image"`
	// ImageReference and Digest are the reference in docker-light stemcells.
	ImageReference string `json:"image_reference"`
	Digest         string `json:"digest"`
}

// IsLight reports whether the stemcell names an image instead of bringing one.
func (p Properties) IsLight() bool { return p.Image != "" || p.ImageReference != "" }

// Reference is the image's reference, pinned by digest when the stemcell gives one.
func (p Properties) Reference() (name.Reference, error) {
	key, given := "image_reference", p.ImageReference
	if given == "" {
		key, given = "image", p.Image
	}
	reference, err := name.ParseReference(given)
	if err != nil {
		return nil, invalid("cloud_properties.%s %q is not an image reference: %w", key, given, err)
	}
	if p.Digest == "" {
		return reference, nil
	}
	pinned, err := name.NewDigest(reference.Context().Name() + "@" + p.Digest)
	if err != nil {
		return nil, invalid("cloud_properties.digest %q is not a digest (sha256:…): %w", p.Digest, err)
	}
	if own, ok := reference.(name.Digest); ok && own.DigestStr() != pinned.DigestStr() {
		return nil, invalid("cloud_properties.digest %s contradicts cloud_properties.%s %s", p.Digest, key, given)
	}
	return pinned, nil
}

// lookupTimeout bounds the question to the registry; an upload must not hang on one that drops packets.
const lookupTimeout = 10 * time.Second

// Pin asks the registry, or its mirror, for the digest that the stemcell's reference names now, and
// returns the CID: the reference pinned by it, and the architectures that it is for. A registry that says
// that there is no such image is ErrNotFound. One that cannot be asked is no error, since the nodes may
// reach it even so: the CID is then the reference as it was given, and the log has a warning.
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
		s.Log.Warn("the registry could not be asked for the image; whether it exists shows when a VM starts",
			"image", mirrored.String(), "error", err.Error())
		return reference.String(), nil
	}
	pinned := mirrored.Context().Digest(descriptor.Digest.String())
	found, err := listPlatforms(pinned, s.readOptions(ctx, mirrored)...)
	if isConnectionLost(err) { // what breaks off within an answer is not repeated by the library
		found, err = listPlatforms(pinned, s.readOptions(ctx, mirrored)...)
	}
	if err != nil {
		s.Log.Warn("the registry does not say which architectures the image is for; nodes of others are not kept from its VMs",
			"image", mirrored.String(), "error", err.Error())
	}
	return appendArchitectures(reference.Context().Digest(descriptor.Digest.String()).Name(), found...), nil
}
