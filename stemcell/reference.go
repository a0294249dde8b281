package stemcell

import (
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// heavyPrefix begins the CID of a stemcell whose image the CPI itself pushed, and may therefore delete.
// The rest is the image's reference where it was pushed. No image's reference can hold "://".
const heavyPrefix = "heavy://"

// IsHeavy reports whether the CPI pushed the image of the stemcell with this CID.
func IsHeavy(cid string) bool { return strings.HasPrefix(cid, heavyPrefix) }

// SampleCID is a CID as a heavy stemcell gets it, of an image that no registry has; "" without a registry to push to.
func (o Options) SampleCID() string {
	if o.Registry.Repository == "" {
		return ""
	}
	return heavyPrefix + o.Registry.Repository + "@sha256:" + strings.Repeat("0", 64)
}

// Image is the reference by which a node pulls the image that a stemcell's CID stands for.
func (o Options) Image(cid string) (string, error) {
	given := Reference(cid)
	if IsHeavy(cid) {
		pushed, err := pushedReference(cid)
		if err != nil {
			return "", err
		}
		if pushed.Context().Name() == repositoryName(o.Registry.Repository) {
			return o.Registry.pullRepository() + "@" + pushed.DigestStr(), nil
		}
		return pushed.Name(), nil
	}
	reference, err := name.ParseReference(given)
	if err != nil || strings.ContainsAny(given, " \t\n") {
		return "", fmt.Errorf("stemcell CID %q is not an image reference; upload the stemcell again", cid)
	}
	mirrored, err := o.applyMirror(reference)
	if err != nil {
		return "", err
	}
	if mirrored == reference {
		return given, nil
	}
	return mirrored.Name(), nil
}

// pushedReference is the reference of a heavy stemcell's image where it was pushed.
func pushedReference(cid string) (name.Digest, error) {
	reference, err := name.NewDigest(strings.TrimPrefix(Reference(cid), heavyPrefix))
	if err != nil {
		return name.Digest{}, fmt.Errorf("stemcell CID %q is not %s and an image reference with a digest; "+
			"upload the stemcell again", cid, heavyPrefix)
	}
	return reference, nil
}

// repositoryName is the repository as go-containerregistry writes it, or "".
func repositoryName(repository string) string {
	parsed, err := name.NewRepository(repository)
	if err != nil {
		return ""
	}
	return parsed.Name()
}

// applyMirror is the reference at the mirror that stands for its registry, or the reference itself.
func (o Options) applyMirror(reference name.Reference) (name.Reference, error) {
	full := reference.Context().Name()
	best, target := "", ""
	for from, to := range o.RegistryMirrors {
		from = canonicalPrefix(strings.TrimSuffix(from, "/"))
		if (full == from || strings.HasPrefix(full, from+"/")) && len(from) > len(best) {
			best, target = from, strings.TrimSuffix(to, "/")
		}
	}
	if best == "" {
		return reference, nil
	}
	separator := ":"
	if _, pinned := reference.(name.Digest); pinned {
		separator = "@"
	}
	moved := target + strings.TrimPrefix(full, best) + separator + reference.Identifier()
	parsed, err := name.ParseReference(moved)
	if err != nil {
		return nil, fmt.Errorf("stemcell.registry_mirrors make %q of %s, which is not an image reference: %w", moved, reference, err)
	}
	return parsed, nil
}

// canonicalPrefix writes Docker Hub's name as go-containerregistry does.
func canonicalPrefix(prefix string) string {
	if registry, rest, more := strings.Cut(prefix, "/"); registry == "docker.io" {
		if more {
			return name.DefaultRegistry + "/" + rest
		}
		return name.DefaultRegistry
	}
	return prefix
}
