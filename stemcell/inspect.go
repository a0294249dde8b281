package stemcell

import (
	"context"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// ExistingImage is a stemcell's image that is in a registry already, such as those that are published as images.
type ExistingImage struct {
	Image     name.Digest
	Platforms []v1.Platform // for which there is one
	// OperatingSystem and Version are the stemcell's, as its image or reference tells them; "" where neither does.
	OperatingSystem, Version string
}

// InspectImage asks the registry for the image that the reference names, an index of several architectures too, and for what
// it tells of the stemcell. The errors are those of Push.
func (s Store) InspectImage(ctx context.Context, reference string) (ExistingImage, error) {
	parsed, err := name.ParseReference(reference)
	if err != nil {
		return ExistingImage{}, invalid("%q is not an image reference: %w", reference, err)
	}
	action, registry := "look up "+parsed.String(), parsed.Context().RegistryStr()
	descriptor, err := remote.Get(parsed, s.readOptions(ctx, parsed)...)
	if err != nil {
		return ExistingImage{}, explain(action, registry, err)
	}
	found := ExistingImage{Image: parsed.Context().Digest(descriptor.Digest.String())}
	if found.Platforms, err = listPlatforms(found.Image, s.readOptions(ctx, parsed)...); err != nil {
		return ExistingImage{}, explain(action, registry, err)
	}
	config, err := configOf(descriptor)
	if err != nil {
		return ExistingImage{}, explain(action, registry, err)
	}
	found.OperatingSystem, found.Version = stemcellInfo(parsed, config.Labels)
	return found, nil
}

// configOf is the image's configuration; of an index, that of its first image.
func configOf(descriptor *remote.Descriptor) (v1.Config, error) {
	image, err := descriptor.Image() // of an index, that for linux/amd64
	if err != nil && descriptor.MediaType.IsIndex() {
		return v1.Config{}, nil // it has none for that: nothing is known then
	}
	if err != nil {
		return v1.Config{}, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return v1.Config{}, err
	}
	return file.Config, nil
}

// stemcellInfo is what an image says of its stemcell: by labels, as Build's do, or by its name, as those do that BOSH
// publishes: ghcr.io/cloudfoundry/ubuntu-jammy-stemcell:1.639.
func stemcellInfo(reference name.Reference, labels map[string]string) (system, version string) {
	version = labels["org.opencontainers.image.version"]
	if tag, tagged := reference.(name.Tag); tagged && version == "" && tag.TagStr() != name.DefaultTag {
		version = tag.TagStr()
	}
	system = strings.TrimPrefix(labels["org.opencontainers.image.title"], "bosh-kubernetes-")
	if base, ok := strings.CutSuffix(path.Base(reference.Context().RepositoryStr()), "-stemcell"); ok && system == "" {
		system = base
	}
	return system, version
}
