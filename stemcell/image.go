package stemcell

import (
	"maps"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// buildImage is an OCI image of these layers. Nothing of this machine and moment goes into it, so that the
// same stemcell always gives the same digest.
func buildImage(found *contents, config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	built := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	built, err := mutate.AppendLayers(built, layers...)
	if err != nil {
		return nil, err
	}
	file, err := built.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	// A node does not start an image that names no platform.
	file.OS, file.Architecture = "linux", found.architecture
	if file.Architecture == "" {
		file.Architecture = "amd64"
	}
	file.Config = config
	return mutate.ConfigFile(built, file)
}

// initConfig is the configuration of an image that starts the stemcell's init on its own.
func initConfig(found *contents) (v1.Config, error) {
	if found.init == "" {
		return v1.Config{}, invalid("the root filesystem has no init program that is known: none of %s", strings.Join(initPrograms, ", "))
	}
	config := v1.Config{Cmd: []string{found.init}}
	if !strings.HasSuffix(found.init, "runsvdir-start") {
		config.StopSignal = "SIGRTMIN+3" // systemd's for halting, see systemd(1)
		config.Env = []string{"container=kubernetes"}
	}
	return config, nil
}

// buildLabels are the image's, for people and registries: https://github.com/opencontainers/image-spec/blob/main/annotations.md
func buildLabels(name, version string, others map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, others)
	all["org.opencontainers.image.title"], all["org.opencontainers.image.version"] = name, version
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}
