package stemcell

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// A CID is the image's reference, and after this mark the architectures that it has programs for, where they are
// known: registry/repository@sha256:…#amd64,arm64. No image's reference can hold it.
const platformSeparator = "#"

// architecturePattern is what Kubernetes allows as a node's, and no more: a registry may say anything.
var architecturePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]{1,63}$`) })

// Architectures are those of the image that a stemcell's CID stands for, by the names that OCI and Kubernetes have for
// them; none where they are not known, as in CIDs that were made before they were noted.
func Architectures(cid string) []string {
	_, noted, _ := strings.Cut(cid, platformSeparator)
	return strings.FieldsFunc(noted, func(mark rune) bool { return mark == ',' })
}

// SameImage reports whether the CIDs stand for the same image, whatever is noted of it.
func SameImage(cid, other string) bool { return Reference(cid) == Reference(other) }

// Reference is the CID without what is noted of its image.
func Reference(cid string) string {
	reference, _, _ := strings.Cut(cid, platformSeparator)
	return reference
}

// appendArchitectures is the CID of an image that is for these platforms.
func appendArchitectures(reference string, platforms ...v1.Platform) string {
	var noted []string
	for _, platform := range platforms {
		if platform.OS == "linux" && architecturePattern().MatchString(platform.Architecture) {
			noted = append(noted, platform.Architecture)
		}
	}
	if len(noted) == 0 {
		return reference
	}
	slices.Sort(noted)
	return reference + platformSeparator + strings.Join(slices.Compact(noted), ",")
}

// listPlatforms are those of the image, or of all the images in the index, that the registry has.
func listPlatforms(pinned name.Digest, options ...remote.Option) ([]v1.Platform, error) {
	descriptor, err := remote.Get(pinned, options...)
	if err != nil {
		return nil, err
	}
	if !descriptor.MediaType.IsIndex() {
		image, err := descriptor.Image()
		if err != nil {
			return nil, err
		}
		platform, err := platformOf(image)
		return []v1.Platform{platform}, err
	}
	index, err := descriptor.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var all []v1.Platform
	for _, each := range manifest.Manifests {
		if each.Platform != nil {
			all = append(all, *each.Platform)
		}
	}
	return all, nil
}

func platformOf(image v1.Image) (v1.Platform, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return v1.Platform{}, err
	}
	return v1.Platform{OS: config.OS, Architecture: config.Architecture}, nil
}
