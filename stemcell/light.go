package stemcell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"
)

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
	if mirrored, err = s.parse(mirrored.Name()); err != nil {
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
