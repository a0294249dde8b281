package stemcell

import (
	"fmt"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// ImageFromRootfs is an OCI image with one layer: a stemcell's root filesystem, as a tar archive or a
// gzipped one. The same archive always gives the same digest; the archive is read as a stream, never
// held in memory.
func ImageFromRootfs(path string) (v1.Image, error) {
	layer, err := tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("%s is not a stemcell's root filesystem (a tar archive, gzipped or not): %w", path, err)
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	// The kubelet does not start an image that names no platform.
	config.OS, config.Architecture = "linux", runtime.GOARCH
	return mutate.ConfigFile(image, config)
}
