package stemcell

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Push makes an image of a heavy stemcell's root filesystem and pushes it to the configured registry.
// It returns the stemcell's CID. The labels go into the image, and so into its digest: two owners of
// the same stemcell share its layer but not the image, and each can delete its own.
//
// A registry holds an image only once its manifest is there, which is sent last; so a push that is cut
// off leaves nothing that is seen, and is repeated by calling it again. What is there already is not
// sent again. Memory does not depend on the stemcell's size.
func (s Store) Push(ctx context.Context, file string, properties Properties, labeled map[string]string) (string, error) {
	if s.Registry.Repository == "" {
		return "", ErrNoRegistry
	}
	repository, err := s.Registry.repository()
	if err != nil {
		return "", err
	}
	releaseStartPages()
	var pushed v1.Image
	pinned, err := s.push(ctx, repository, file, properties, func(found *contents, base v1.Layer) (_ v1.Image, err error) {
		pushed, err = buildImage(found, v1.Config{Labels: buildLabels(properties.Name, properties.Version, labeled)}, base)
		return pushed, err
	})
	if err != nil {
		return "", err
	}
	builtFor, err := platformOf(pushed)
	return appendArchitectures(heavyPrefix+pinned.Name(), builtFor), err
}

// Build pushes a root filesystem as the image of a light stemcell, with the init program as the image's
// command.
func (s Store) Build(ctx context.Context, file string, properties Properties) (name.Digest, error) {
	repository, err := s.Registry.repository()
	if err != nil {
		return name.Digest{}, err
	}
	return s.push(ctx, repository, file, properties, func(found *contents, base v1.Layer) (v1.Image, error) {
		config, err := initConfig(found)
		if err != nil {
			return nil, err
		}
		config.Labels = buildLabels(properties.Name, properties.Version, nil)
		return buildImage(found, config, base)
	})
}

func (s Store) push(ctx context.Context, repository name.Repository, file string, properties Properties,
	build func(*contents, v1.Layer) (v1.Image, error)) (name.Digest, error) {
	action := "push the stemcell's image to " + repository.Name()
	fs, err := openRootfs(ctx, file)
	if err != nil {
		return name.Digest{}, err
	}
	checkCtx, stop := context.WithCancel(ctx)
	defer stop()
	base := newLayer(checkCtx, fs, s.Log)

	pusher, err := remote.NewPusher(s.writeOptions(ctx)...)
	if err != nil {
		return name.Digest{}, err
	}
	if err := pusher.Upload(ctx, repository, base); err != nil {
		if done, bad := base.checkDone(); done && bad != nil {
			err = bad // what the registry says of an upload that was broken off is of no interest
		}
		return name.Digest{}, explain(action, repository.RegistryStr(), err)
	}
	found, err := base.wait()
	if err != nil {
		return name.Digest{}, err
	}
	built, err := build(found, base)
	if err != nil {
		return name.Digest{}, err
	}
	digest, err := built.Digest()
	if err != nil {
		return name.Digest{}, err
	}
	pinned := repository.Digest(digest.String())
	if err := pusher.Push(ctx, pinned, built); err != nil {
		return name.Digest{}, explain(action, repository.RegistryStr(), err)
	}
	tag := repository.Tag(tagFor(properties, digest))
	if err := s.tag(ctx, pusher, tag, built, digest); err != nil {
		return name.Digest{}, explain("tag the stemcell's image "+tag.Name(), repository.RegistryStr(), err)
	}
	s.Log.Info("the stemcell's image is in the registry", "image", pinned.Name(), "tag", tag.TagStr())
	return pinned, nil
}

// tag gives the image a tag: many registries clear away images without one.
func (s Store) tag(ctx context.Context, pusher *remote.Pusher, tag name.Tag, image v1.Image, digest v1.Hash) error {
	existing, err := remote.Head(tag, s.writeOptions(ctx)...)
	if err == nil && existing.Digest == digest {
		return nil
	}
	return pusher.Put(ctx, tag, image)
}

var invalidTagChars = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9_.-]+`) })

// tagFor is a tag that people can read and that no other image ever gets. A tag has at most 128
// characters: https://github.com/opencontainers/distribution-spec/blob/main/spec.md
func tagFor(properties Properties, digest v1.Hash) string {
	readable := invalidTagChars().ReplaceAllString(properties.Name+"-"+properties.Version, "-")
	readable = strings.Trim(readable[:min(len(readable), 100)], "-._")
	if readable == "" {
		readable = "stemcell"
	}
	return readable + "-" + digest.Hex[:12]
}

// Delete removes a heavy stemcell's image from the registry; nothing happens when it is gone already.
// A light one's registry is never asked.
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
		return fmt.Errorf("the stemcell's image is in %s, and stemcell.registry.repository is %q: "+
			"set it back, or delete the image %s by hand and the stemcell with --force",
			pushed.Context().Name(), s.Registry.Repository, pushed.Name())
	}
	pusher, err := remote.NewPusher(s.writeOptions(ctx)...)
	if err != nil {
		return err
	}
	err = pusher.Delete(ctx, configured.Digest(pushed.DigestStr()))
	var response *transport.Error
	if errors.As(err, &response) && response.StatusCode == http.StatusNotFound {
		return nil
	}
	return explain("delete the image "+pushed.Name(), registry, err)
}
