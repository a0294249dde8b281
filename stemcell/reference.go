package stemcell

import (
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// heavyPrefix begins the CIDs of heavy stemcells. The CPI pushed their images, and may delete them. The rest of the CID is the reference of
// the pushed image, which cannot contain "://".
const heavyPrefix = "heavy://"

// IsHeavy reports whether the CID is of a heavy stemcell.
func IsHeavy(cid string) bool { return strings.HasPrefix(cid, heavyPrefix) }

// SampleCID returns a CID of a heavy stemcell for a fictitious image, or "" if no registry is configured.
func (o Options) SampleCID() string {
	if o.Registry.Repository == "" {
		return ""
	}
	return heavyPrefix + o.Registry.Repository + "@sha256:" + strings.Repeat("0", 64)
}

// Image returns the image reference that nodes use to pull the stemcell's image.
func (o Options) Image(cid string) (string, error) {
	original := Reference(cid)
	if IsHeavy(cid) {
		pushed, err := pushedReference(cid)
		if err != nil {
			return "", err
		}
		if configured, err := o.Registry.repository(); err == nil && configured.Name() == pushed.Context().Name() {
			return o.Registry.pullRepository() + "@" + pushed.DigestStr(), nil
		}
		return pushed.Name(), nil
	}
	reference, err := name.ParseReference(original)
	if err != nil || strings.ContainsAny(original, " \t\n") || !strings.ContainsAny(original, "/:@") { // a name alone is a CID of another CPI
		return "", fmt.Errorf("stemcell CID %q is not an image reference as this CPI returns it; upload the stemcell again", cid)
	}
	mirrored, err := o.applyMirror(reference)
	if err != nil {
		return "", err
	}
	if mirrored == reference {
		return original, nil
	}
	return mirrored.Name(), nil
}

// pushedReference returns the reference of the pushed image of a heavy stemcell.
func pushedReference(cid string) (name.Digest, error) {
	reference, err := name.NewDigest(strings.TrimPrefix(Reference(cid), heavyPrefix))
	if err != nil {
		return name.Digest{}, fmt.Errorf("stemcell CID %q is not valid; it requires %s and an image reference with a digest; "+
			"upload the stemcell again", cid, heavyPrefix)
	}
	return reference, nil
}

// applyMirror returns the reference in the mirror with the longest matching prefix, or the unchanged reference if no mirror matches.
func (o Options) applyMirror(reference name.Reference) (name.Reference, error) {
	repository := reference.Context().Name()
	prefix, mirror := "", ""
	for from, to := range o.RegistryMirrors {
		from = canonicalPrefix(strings.TrimSuffix(from, "/"))
		if (repository == from || strings.HasPrefix(repository, from+"/")) && len(from) > len(prefix) {
			prefix, mirror = from, strings.TrimSuffix(to, "/")
		}
	}
	if prefix == "" {
		return reference, nil
	}
	separator := ":"
	if _, pinned := reference.(name.Digest); pinned {
		separator = "@"
	}
	mirrored := mirror + strings.TrimPrefix(repository, prefix) + separator + reference.Identifier()
	parsed, err := name.ParseReference(mirrored)
	if err != nil {
		return nil, fmt.Errorf("kubernetes.stemcell.registry_mirrors rewrites %s to %q, which is not a valid image reference: %w",
			reference, mirrored, err)
	}
	return parsed, nil
}

// canonicalPrefix returns the prefix with go-containerregistry's name for Docker Hub.
func canonicalPrefix(prefix string) string {
	if rest, found := strings.CutPrefix(prefix, "docker.io"); found && (rest == "" || rest[0] == '/') {
		return name.DefaultRegistry + rest
	}
	return prefix
}
