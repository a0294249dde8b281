package stemcell

import (
	"maps"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// buildImage returns an OCI image with these layers. The image contains no timestamps and nothing host-specific, so that the same stemcell
// always has the same digest.
func buildImage(rootfs *contents, config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(image, layers...)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	// Nodes do not start an image without a platform.
	file.OS, file.Architecture = "linux", rootfs.architecture
	if file.Architecture == "" {
		file.Architecture = "amd64"
	}
	file.Config = config
	return mutate.ConfigFile(image, file)
}

// initConfig returns the configuration of an image that starts the stemcell's init program by default.
func initConfig(rootfs *contents) (v1.Config, error) {
	if rootfs.init == "" {
		return v1.Config{}, invalid("the root filesystem has none of the known init programs: %s", strings.Join(initPrograms, ", "))
	}
	config := v1.Config{Cmd: []string{rootfs.init}}
	if !strings.HasSuffix(rootfs.init, "runsvdir-start") {
		config.StopSignal = "SIGRTMIN+3" // halts systemd, see systemd(1)
		config.Env = []string{"container=kubernetes"}
	}
	return config, nil
}

// buildLabels returns the labels of the image: the given ones, and the title and version according to
// https://github.com/opencontainers/image-spec/blob/main/annotations.md.
func buildLabels(name, version string, additional map[string]string) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, additional)
	labels["org.opencontainers.image.title"], labels["org.opencontainers.image.version"] = name, version
	maps.DeleteFunc(labels, func(_, value string) bool { return value == "" })
	return labels
}
