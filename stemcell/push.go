package stemcell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Push builds an image from the root filesystem of a heavy stemcell, pushes it to the configured registry, and returns the stemcell's CID.
// The labels are part of the image and change its digest. Owners with different labels therefore share the layer but not the image, and
// each of them can delete its image.
//
// Push uploads the manifest last, and the image exists only after that. An interrupted push therefore leaves no incomplete image, and can
// be retried without uploading existing parts again. The memory usage does not depend on the size of the stemcell.
func (s Store) Push(ctx context.Context, file string, properties Properties, labels map[string]string) (string, error) {
	if s.Registry.Repository == "" {
		return "", ErrNoRegistry
	}
	repository, err := s.Registry.repository()
	if err != nil {
		return "", err
	}
	releaseStartPages()
	var image v1.Image
	pinned, err := s.push(ctx, repository, file, properties, func(rootfs *contents, base v1.Layer) (_ v1.Image, err error) {
		image, err = buildImage(rootfs, v1.Config{Labels: buildLabels(properties.Name, properties.Version, labels)}, base)
		return image, err
	})
	if err != nil {
		return "", err
	}
	platform, err := platformOf(image)
	return appendArchitectures(heavyPrefix+pinned.Name(), platform), err
}

// Build pushes a root filesystem as the image of a light stemcell, with the init program as the command of the image.
func (s Store) Build(ctx context.Context, file string, properties Properties) (name.Digest, error) {
	repository, err := s.Registry.repository()
	if err != nil {
		return name.Digest{}, err
	}
	return s.push(ctx, repository, file, properties, func(rootfs *contents, base v1.Layer) (v1.Image, error) {
		config, err := initConfig(rootfs)
		if err != nil {
			return nil, err
		}
		config.Labels = buildLabels(properties.Name, properties.Version, nil)
		return buildImage(rootfs, config, base)
	})
}

// push uploads the root filesystem in file as a layer. It then pushes and tags the image that build returns for the layer.
func (s Store) push(ctx context.Context, repository name.Repository, file string, properties Properties,
	build func(*contents, v1.Layer) (v1.Image, error)) (name.Digest, error) {
	action := "push the stemcell's image to " + repository.Name()
	fs, err := openRootfs(ctx, file)
	if err != nil {
		return name.Digest{}, err
	}
	scanCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	base := newLayer(scanCtx, fs, s.Log)

	pusher, err := remote.NewPusher(s.writeOptions(ctx)...)
	if err != nil {
		return name.Digest{}, err
	}
	if err := pusher.Upload(ctx, repository, base); err != nil {
		if scanErr := base.scanError(); scanErr != nil {
			err = scanErr // the cause of the failed upload
		}
		return name.Digest{}, explain(action, repository.RegistryStr(), err)
	}
	contents, err := base.wait()
	if err != nil {
		return name.Digest{}, err
	}
	image, err := build(contents, base)
	if err != nil {
		return name.Digest{}, err
	}
	digest, err := image.Digest()
	if err != nil {
		return name.Digest{}, err
	}
	pinned := repository.Digest(digest.String())
	if err := pusher.Push(ctx, pinned, image); err != nil {
		return name.Digest{}, explain(action, repository.RegistryStr(), err)
	}
	tag := repository.Tag(tagFor(properties, digest))
	if err := ensureTag(ctx, pusher, tag, image, digest, s.writeOptions(ctx)); err != nil {
		return name.Digest{}, explain("tag the stemcell's image "+tag.Name(), repository.RegistryStr(), err)
	}
	s.Log.Info("the image of the stemcell exists in the registry", "image", pinned.Name(), "tag", tag.TagStr())
	return pinned, nil
}

// ensureTag tags the image, because many registries delete untagged images.
func ensureTag(
	ctx context.Context, pusher *remote.Pusher, tag name.Tag, image remote.Taggable, digest v1.Hash, options []remote.Option,
) error {

	existing, err := remote.Head(tag, options...)
	if err == nil && existing.Digest == digest {
		return nil
	}
	return pusher.Put(ctx, tag, image)
}

var invalidTagChars = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9_.-]+`) })

// tagFor returns a readable tag that is unique to the image. A tag has at most 128 characters:
// https://github.com/opencontainers/distribution-spec/blob/main/spec.md
func tagFor(properties Properties, digest v1.Hash) string {
	prefix := invalidTagChars().ReplaceAllString(properties.Name+"-"+properties.Version, "-")
	return cmp.Or(strings.Trim(prefix[:min(len(prefix), 100)], "-._"), "stemcell") + tagSuffix(digest)
}

func tagSuffix(digest v1.Hash) string { return "-" + digest.Hex[:12] }

// Delete deletes the image of a heavy stemcell from the registry, if it exists. For a light stemcell it does nothing.
func (s Store) Delete(ctx context.Context, cid string) error {
	if !IsHeavy(cid) {
		return nil
	}
	pushed, err := pushedReference(cid)
	if err != nil {
		return err
	}
	registry := pushed.Context().RegistryStr()
	configured, err := s.Registry.repository()
	if s.Registry.Repository == "" || err != nil || configured.Name() != pushed.Context().Name() {
		return fmt.Errorf("the stemcell's image is in %s, but kubernetes.stemcell.registry.repository is %q; "+
			"restore the setting, or delete image %s manually and the stemcell with --force",
			pushed.Context().Name(), s.Registry.Repository, pushed.Name())
	}
	pusher, err := remote.NewPusher(s.writeOptions(ctx)...)
	if err != nil {
		return err
	}
	err = pusher.Delete(ctx, configured.Digest(pushed.DigestStr()))
	if requiresUntagged(err) {
		if err = s.deleteTags(ctx, pusher, configured, pushed.DigestStr()); err == nil {
			err = pusher.Delete(ctx, configured.Digest(pushed.DigestStr()))
		}
	}
	if response, ok := errors.AsType[*transport.Error](err); ok {
		switch response.StatusCode {
		case http.StatusNotFound:
			return nil
		case http.StatusMethodNotAllowed:
			return fmt.Errorf("delete the image %s: %w; enable deletion in registry %s "+
				"(Docker's and Debian's registry: REGISTRY_STORAGE_DELETE_ENABLED=true)", pushed.Name(), ErrDeleteUnsupported, registry)
		}
	}
	return explain("delete the image "+pushed.Name(), registry, err)
}

// requiresUntagged reports whether the registry deletes only images without tags, like Google's:
// https://github.com/genuinetools/reg/issues/136.
func requiresUntagged(err error) bool {
	response, ok := errors.AsType[*transport.Error](err)
	return ok && slices.ContainsFunc(response.Errors, func(d transport.Diagnostic) bool { return d.Code == "GOOGLE_MANIFEST_DANGLING_TAG" })
}

// deleteTags deletes the tags of push for the image.
func (s Store) deleteTags(ctx context.Context, pusher *remote.Pusher, repository name.Repository, digest string) error {
	hash, err := v1.NewHash(digest)
	if err != nil {
		return err
	}
	tags, err := remote.List(repository, s.writeOptions(ctx)...)
	if err != nil {
		return err
	}
	for _, tag := range tags {
		if !strings.HasSuffix(tag, tagSuffix(hash)) {
			continue
		}
		if err := pusher.Delete(ctx, repository.Tag(tag)); err != nil {
			return err
		}
	}
	return nil
}
