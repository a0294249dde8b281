// Package stemcell turns what BOSH calls a stemcell into a container image's reference.
//
// It knows registries and stemcell formats, and nothing of Kubernetes' API or the CPI's protocol.
package stemcell

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// ErrNotFound: the registry answers that it has no such image.
var ErrNotFound = errors.New("image not found")

// Formats are the stemcell formats that create_stemcell accepts, as info reports them.
func Formats() []string {
	return []string{"kubernetes-light", "docker-light"}
}

// Properties are the cloud_properties of a stemcell.MF that name an image. Others (name, version,
// infrastructure …) are the director's and are ignored.
type Properties struct {
	// Image is the reference in older Kubernetes stemcells.
	Image string `json:"image"`
	// ImageReference and Digest are the reference in docker-light stemcells.
	ImageReference string `json:"image_reference"`
	Digest         string `json:"digest"`
}

// Light reports whether the stemcell names an image instead of bringing one.
func (p Properties) Light() bool { return p.Image != "" || p.ImageReference != "" }

// Reference is the image's reference, pinned by digest when the stemcell gives one.
func (p Properties) Reference() (name.Reference, error) {
	key, given := "image_reference", p.ImageReference
	if given == "" {
		key, given = "image", p.Image
	}
	reference, err := name.ParseReference(given)
	if err != nil {
		return nil, fmt.Errorf("cloud_properties.%s %q is not an image reference: %w", key, given, err)
	}
	if p.Digest == "" {
		return reference, nil
	}
	pinned, err := name.NewDigest(reference.Context().Name() + "@" + p.Digest)
	if err != nil {
		return nil, fmt.Errorf("cloud_properties.digest %q is not a digest (sha256:…): %w", p.Digest, err)
	}
	if own, ok := reference.(name.Digest); ok && own.DigestStr() != pinned.DigestStr() {
		return nil, fmt.Errorf("cloud_properties.digest %s contradicts cloud_properties.%s %s", p.Digest, key, given)
	}
	return pinned, nil
}

// lookTime bounds the question to the registry; an upload must not hang on one that drops packets.
const lookTime = 10 * time.Second

// Pin asks the registry for the digest that the reference names now. It answers ErrNotFound when the
// registry says that there is no such image, and any other error when the registry could not be asked
// (the nodes may reach it even so).
func Pin(ctx context.Context, reference name.Reference) (name.Digest, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	described, err := remote.Head(reference, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithRetryBackoff(remote.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 2}))
	var answer *transport.Error
	switch {
	case errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound:
		return name.Digest{}, fmt.Errorf("%w: %s", ErrNotFound, reference)
	case err != nil:
		return name.Digest{}, err
	}
	return reference.Context().Digest(described.Digest.String()), nil
}

// Image is the reference for a Pod that a stemcell's CID stands for.
func Image(cid string) (string, error) {
	if _, err := name.ParseReference(cid); err != nil || strings.ContainsAny(cid, " \t\n") {
		return "", fmt.Errorf("stemcell CID %q is not an image reference; upload the stemcell again", cid)
	}
	return cid, nil
}
