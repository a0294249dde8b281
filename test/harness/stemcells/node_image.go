package stemcells

import (
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
)

// NodeImageReference is the configured image of bosh-node in calls that push none.
const NodeImageReference = "registry.example.org/bosh-node@sha256:" + "abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789"

// NodeImage writes an image like that of bosh-node, with random content, into dir, where package stemcell finds it for a program in the
// directory dir/bin. It returns the directory of the image and the digest.
func NodeImage(dir, repository string) (path, digest string) {
	index, err := random.Index(256, 1, 2)
	must(err)
	hash, err := index.Digest()
	must(err)
	path = filepath.Join(dir, "node-image")
	must(os.MkdirAll(filepath.Join(dir, "bin"), 0o750))
	addendum := mutate.IndexAddendum{Add: index}
	addendum.Annotations = map[string]string{"io.containerd.image.name": repository + "@" + hash.String()}
	_, err = layout.Write(path, mutate.AppendManifests(empty.Index, addendum))
	must(err)
	return path, hash.String()
}
