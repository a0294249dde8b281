package stemcell

import (
	"context"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// ExistingImage is a stemcell image that is already in a registry, for example one published by the BOSH project.
type ExistingImage struct {
	Image     name.Digest
	Platforms []v1.Platform
	// OperatingSystem and Version of the stemcell come from the image's labels or, without them, from its reference. They may be empty.
	OperatingSystem, Version string
}

// InspectImage looks up an image, or an index of images for several architectures, in its registry. It returns the same errors as Push.
func (s Store) InspectImage(ctx context.Context, reference string) (ExistingImage, error) {
	parsed, err := name.ParseReference(reference)
	if err != nil {
		return ExistingImage{}, invalid("%q is not a valid image reference: %w", reference, err)
	}
	action, registry := "look up "+parsed.String(), parsed.Context().RegistryStr()
	descriptor, err := remote.Get(parsed, s.readOptions(ctx, parsed)...)
	if err != nil {
		return ExistingImage{}, explain(action, registry, err)
	}
	existing := ExistingImage{Image: parsed.Context().Digest(descriptor.Digest.String())}
	if existing.Platforms, err = listPlatforms(existing.Image, s.readOptions(ctx, parsed)...); err != nil {
		return ExistingImage{}, explain(action, registry, err)
	}
	config, err := configOf(descriptor)
	if err != nil {
		return ExistingImage{}, explain(action, registry, err)
	}
	existing.OperatingSystem, existing.Version = stemcellInfo(parsed, config.Labels)
	return existing, nil
}

// configOf returns the configuration of an image, or of the image for linux/amd64 in an index. The result is empty if the index has no
// such image.
func configOf(descriptor *remote.Descriptor) (v1.Config, error) {
	image, err := descriptor.Image()
	if err != nil && descriptor.MediaType.IsIndex() {
		return v1.Config{}, nil
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

// stemcellInfo returns the operating system and the version of a stemcell image. They come from the labels, as set by Build, or without
// them from the reference, as in the BOSH project's ghcr.io/cloudfoundry/ubuntu-jammy-stemcell:1.639.
func stemcellInfo(reference name.Reference, labels map[string]string) (operatingSystem, version string) {
	version = labels["org.opencontainers.image.version"]
	if tag, tagged := reference.(name.Tag); tagged && version == "" && tag.TagStr() != name.DefaultTag {
		version = tag.TagStr()
	}
	operatingSystem = strings.TrimPrefix(labels["org.opencontainers.image.title"], "bosh-kubernetes-")
	if base, ok := strings.CutSuffix(path.Base(reference.Context().RepositoryStr()), "-stemcell"); ok && operatingSystem == "" {
		operatingSystem = base
	}
	return operatingSystem, version
}
