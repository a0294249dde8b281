package stemcell

import (
	"cmp"
	"maps"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// ImageNameAnnotation is the annotation with the name that an image of an OCI layout has in containerd:
// https://github.com/containerd/containerd/blob/main/core/images/annotations.go. A cluster on the operator's host may have no registry:
// tools such as kind copy archives of layouts into the nodes instead.
const ImageNameAnnotation = "io.containerd.image.name"

// buildImage returns the image of a root filesystem.
func buildImage(rootfs *contents, config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	return NewImage(cmp.Or(rootfs.architecture, "amd64"), config, layers...) // nodes do not start an image without a platform
}

// NewImage returns an OCI image for Linux with these layers. The image contains no timestamps and nothing host-specific, so that the same
// layers always have the same digest.
func NewImage(architecture string, config v1.Config, layers ...v1.Layer) (v1.Image, error) {
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
	file.OS, file.Architecture, file.Config = "linux", architecture, config
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
