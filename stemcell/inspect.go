package stemcell

import (
	"cmp"
	"context"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/apimachinery/pkg/util/version"
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
	parsed, err := s.parse(reference)
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

// apiVersion is the stemcell API version that the stemcell.MF of published stemcells declares.
const apiVersion = 3

// LightManifest returns the manifest of a light stemcell with an image that is already in a registry. A Name, OperatingSystem or Version in
// preset replaces the image's.
func (s Store) LightManifest(ctx context.Context, reference string, preset Manifest) (Manifest, error) {
	info, err := s.InspectImage(ctx, reference)
	if err != nil {
		return Manifest{}, err
	}
	light := NewLightManifest(Manifest{
		Name:            preset.Name,
		OperatingSystem: cmp.Or(preset.OperatingSystem, info.OperatingSystem), Version: cmp.Or(preset.Version, info.Version),
		CloudProperties: Properties{ImageReference: info.Image.Context().Name(), Digest: info.Image.DigestStr()},
	})
	if light.OperatingSystem == "" || light.Version == "" {
		return light, invalid("the operating system and version of the image are unknown; set both")
	}
	for _, platform := range info.Platforms {
		s.Log.Info("found image in registry", "image", info.Image.String(), "platform", platform.String())
	}
	return light, nil
}

// LatestVersion returns the highest version of the tags in the repository.
func (s Store) LatestVersion(ctx context.Context, repository string) (string, error) {
	parsed, err := name.NewRepository(repository)
	if err != nil {
		return "", invalid("%q is not a valid repository: %w", repository, err)
	}
	tags, err := remote.List(parsed, s.readOptions(ctx, parsed.Tag(name.DefaultTag))...)
	if err != nil {
		return "", explain("list the versions of "+parsed.String(), parsed.RegistryStr(), err)
	}
	var latest *version.Version
	latestTag := ""
	for _, tag := range tags {
		parsed, err := version.ParseGeneric(tag)
		if err == nil && strings.Trim(tag, ".0123456789") == "" && (latest == nil || latest.LessThan(parsed)) {
			latest, latestTag = parsed, tag
		}
	}
	if latest == nil {
		return "", invalid("%s has no tags that are versions; set one", repository)
	}
	return latestTag, nil
}

// NewLightManifest returns the manifest with the default name, and with the API version of published stemcells.
func NewLightManifest(m Manifest) Manifest {
	m.Name, m.APIVersion = cmp.Or(m.Name, "bosh-kubernetes-"+m.OperatingSystem), apiVersion
	return m
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
