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

// platformSeparator separates the image reference in a CID from the image's architectures, if they are known:
// registry/repository@sha256:…#amd64,arm64. It cannot occur in an image reference.
const platformSeparator = "#"

// architecturePattern matches valid values of the node label kubernetes.io/arch. A registry may report anything.
var architecturePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]{1,63}$`) })

// Architectures returns the architectures in the CID, as named by OCI and Kubernetes. It returns none if they are unknown, for example
// for a CID of an earlier version of the CPI.
func Architectures(cid string) []string {
	_, architectures, _ := strings.Cut(cid, platformSeparator)
	return strings.FieldsFunc(architectures, func(char rune) bool { return char == ',' })
}

// SameImage reports whether the CIDs refer to the same image. It ignores the architectures in the CIDs.
func SameImage(a, b string) bool { return Reference(a) == Reference(b) }

// Reference returns the CID without the architectures.
func Reference(cid string) string {
	reference, _, _ := strings.Cut(cid, platformSeparator)
	return reference
}

// appendArchitectures returns the CID of an image for these platforms. It omits platforms other than Linux, and unknown architectures.
func appendArchitectures(reference string, platforms ...v1.Platform) string {
	var architectures []string
	for _, platform := range platforms {
		if platform.OS == "linux" && architecturePattern().MatchString(platform.Architecture) {
			architectures = append(architectures, platform.Architecture)
		}
	}
	if len(architectures) == 0 {
		return reference
	}
	slices.Sort(architectures)
	return reference + platformSeparator + strings.Join(slices.Compact(architectures), ",")
}

// listPlatforms returns the platform of the image, or the platforms of all images in the index.
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
	var platforms []v1.Platform
	for _, image := range manifest.Manifests {
		if image.Platform != nil {
			platforms = append(platforms, *image.Platform)
		}
	}
	return platforms, nil
}

func platformOf(image v1.Image) (v1.Platform, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return v1.Platform{}, err
	}
	return v1.Platform{OS: config.OS, Architecture: config.Architecture}, nil
}
