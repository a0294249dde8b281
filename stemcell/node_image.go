package stemcell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// NodeImage is the image of bosh-node, the CPI's program on nodes. Its reference always has a digest, so that nodes run the program that
// belongs to this version of the CPI.
type NodeImage struct {
	// Store provides access to the registries: the image goes the same way as those of stemcells.
	Store
	// Configured is the reference in the CPI's configuration, or "".
	Configured string
	// Layout is the directory with the image, or "": see NodeImageLayout.
	Layout string
}

// ErrNoNodeImage means that the reference of the image is unknown.
var ErrNoNodeImage = errors.New("the image of bosh-node is unknown")

// NodeImageLayout returns the directory with the image that BOSH compiled with the program: an OCI image layout next to the program's
// directory. It returns "" if there is none, because the program was built in another way.
func NodeImageLayout(program string) string {
	dir := filepath.Join(filepath.Dir(program), "..", "node-image")
	if _, err := os.Stat(filepath.Join(dir, "index.json")); err != nil {
		return ""
	}
	return dir
}

// Validate checks that the configured reference has a digest, and refers to the image of this version of the CPI.
func (n NodeImage) Validate() error {
	if n.Configured == "" {
		return nil
	}
	configured, err := name.NewDigest(n.Configured)
	if err != nil {
		return fmt.Errorf("kubernetes.node_image %q is not valid; it requires a repository and a digest, as in "+
			"registry.example.com/bosh-node@sha256:…", n.Configured)
	}
	if n.Layout == "" {
		return nil
	}
	built, _, err := n.read()
	if err == nil && built.DigestStr() != configured.DigestStr() {
		err = fmt.Errorf("kubernetes.node_image %s is not the image of this version of the CPI; push that image, and set "+
			"kubernetes.node_image to %s@%s", n.Configured, configured.Context(), built.DigestStr())
	}
	return err
}

// Reference returns the image reference that nodes use: the configured one, or the one in the registry for heavy stemcells, or the one that
// was published with the release. Mirrors replace prefixes of the first and the last.
func (n NodeImage) Reference() (string, error) {
	if n.Configured != "" {
		return n.Image(n.Configured)
	}
	built, _, err := n.read()
	if err != nil {
		return "", err
	}
	return n.PublishedNodeImage(built)
}

// PublishedNodeImage returns the reference that nodes use for the image of bosh-node that was published under this one: in the registry for
// heavy stemcells, or with mirrors.
func (o Options) PublishedNodeImage(published name.Digest) (string, error) {
	if o.Registry.Repository != "" {
		return o.Image(heavyPrefix + o.Registry.Repository + "@" + published.DigestStr())
	}
	return o.Image(published.Name())
}

// read returns the image in the layout, and its published reference.
func (n NodeImage) read() (name.Digest, v1.ImageIndex, error) {
	if n.Layout == "" {
		return name.Digest{}, nil, fmt.Errorf("%w: the program of the CPI has no directory node-image next to it; set kubernetes.node_image",
			ErrNoNodeImage)
	}
	fail := func(err error) (name.Digest, v1.ImageIndex, error) {
		return name.Digest{}, nil, fmt.Errorf("read the image of bosh-node in %s: %w", n.Layout, err)
	}
	images, err := layout.ImageIndexFromPath(n.Layout)
	if err != nil {
		return fail(err)
	}
	manifest, err := images.IndexManifest()
	if err != nil {
		return fail(err)
	}
	if len(manifest.Manifests) != 1 {
		return fail(fmt.Errorf("it has %d images instead of one", len(manifest.Manifests)))
	}
	reference, err := name.NewDigest(manifest.Manifests[0].Annotations[ImageNameAnnotation])
	if err != nil {
		return fail(err)
	}
	image, err := images.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		return fail(err)
	}
	return reference, image, nil
}

// Ensure pushes the image to the registry for heavy stemcells, unless it is there. It has no effect if nodes use another reference, or if
// there is no image to push.
func (n NodeImage) Ensure(ctx context.Context) error {
	if n.Configured != "" || n.Registry.Repository == "" || n.Layout == "" {
		return nil
	}
	repository, err := n.Registry.repository()
	if err != nil {
		return err
	}
	built, _, err := n.read()
	if err != nil {
		return err
	}
	pinned := repository.Digest(built.DigestStr())
	lookupCtx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	_, err = remote.Head(pinned, n.writeOptions(lookupCtx)...)
	err = explain("look up "+pinned.Name(), repository.RegistryStr(), err)
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	_, err = n.Push(ctx)
	return err
}

// Push pushes the image to the repository from which nodes pull it, and returns its reference there. Credentials are those of
// kubernetes.stemcell.registry for the same registry, otherwise those in Docker's configuration.
func (n NodeImage) Push(ctx context.Context) (string, error) {
	_, image, err := n.read()
	if err != nil {
		return "", err
	}
	repository, err := n.pushRepository()
	if err != nil {
		return "", err
	}
	digest, err := image.Digest()
	if err != nil {
		return "", err
	}
	pinned := repository.Digest(digest.String())
	options := n.readOptions(ctx, pinned)
	pusher, err := remote.NewPusher(options...)
	if err != nil {
		return "", err
	}
	if err := pusher.Push(ctx, pinned, image); err != nil {
		return "", explain("push the image "+pinned.Name(), repository.RegistryStr(), err)
	}
	tag := repository.Tag(tagFor(Properties{Name: "bosh-node"}, digest))
	if err := ensureTag(ctx, pusher, tag, image, digest, options); err != nil {
		return "", explain("tag the image "+tag.Name(), repository.RegistryStr(), err)
	}
	n.Log.Info("pushed the image of bosh-node", "image", pinned.Name(), "tag", tag.TagStr())
	return pinned.Name(), nil
}

// pushRepository returns the CPI's name of the repository from which nodes pull the image.
func (n NodeImage) pushRepository() (name.Repository, error) {
	if n.Configured == "" && n.Registry.Repository != "" {
		return n.Registry.repository()
	}
	reference, err := n.Reference()
	if err != nil {
		return name.Repository{}, err
	}
	parsed, err := n.parse(reference)
	if err != nil {
		return name.Repository{}, err
	}
	return parsed.Context(), nil
}
