package stemcell

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image is an OCI image of these layers. Nothing of this machine and moment goes into it, so that the
// same stemcell always gives the same digest.
func image(found *contents, config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	made := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	made, err := mutate.AppendLayers(made, layers...)
	if err != nil {
		return nil, err
	}
	file, err := made.ConfigFile()
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
	return mutate.ConfigFile(made, file)
}

// agentLayer replaces the archive's agent.json by one for this CPI's machines. The folders above it
// are repeated as they are, because not every container runtime looks below for their owner and mode.
func agentLayer(found *contents) (v1.Layer, error) {
	content, err := agentConfigFor(found.agentConfig)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, entry := range found.entries {
		header := *entry
		header.Name = strings.TrimPrefix(path.Clean("/"+entry.Name), "/")
		if entry.Typeflag == tar.TypeDir {
			header.Name += "/"
		} else {
			header.Typeflag, header.Linkname, header.Size = tar.TypeReg, "", int64(len(content))
		}
		if err := writer.WriteHeader(&header); err != nil {
			return nil, err
		}
		if header.Typeflag == tar.TypeReg {
			if _, err := writer.Write(content); err != nil {
				return nil, err
			}
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return static.NewLayer(archive.Bytes(), types.OCIUncompressedLayer), nil
}

// settingsPath is where the machine's start script puts the agent's settings when the stemcell does
// not say otherwise, as in BOSH's own container stemcells.
const settingsPath = "/var/vcap/bosh/warden-cpi-agent-env.json"

// agentConfigFor is a stemcell's agent.json with what a machine of this CPI needs, and everything else
// as it was: disks come as devices that need no partitions, and the settings come as a file. The keys
// are the agent's: platform/linux_platform.go and infrastructure/settings_source_factory.go of
// cloudfoundry/bosh-agent.
func agentConfigFor(original []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(original))
	decoder.UseNumber()
	config := map[string]any{}
	if err := decoder.Decode(&config); err != nil {
		return nil, invalid("%s is not a JSON hash: %w", agentConfig, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid("%s has something after its JSON hash", agentConfig)
	}
	linux, err := hashAt(config, "Platform", "Linux")
	if err != nil {
		return nil, err
	}
	linux["UsePreformattedPersistentDisk"] = true
	linux["BindMountPersistentDisk"] = false
	linux["SkipDiskSetup"] = true
	linux["UseDefaultTmpDir"] = true
	settings, err := hashAt(config, "Infrastructure", "Settings")
	if err != nil {
		return nil, err
	}
	sources, _ := settings["Sources"].([]any)
	sources = slices.DeleteFunc(sources, func(source any) bool { return !isFileSource(source) })
	if len(sources) == 0 {
		sources = []any{map[string]any{"Type": "File", "SettingsPath": settingsPath}}
	}
	settings["Sources"] = sources[:1]
	content, err := json.MarshalIndent(config, "", "  ")
	return append(content, '\n'), err
}

func isFileSource(source any) bool {
	hash, ok := source.(map[string]any)
	place, _ := hash["SettingsPath"].(string)
	return ok && hash["Type"] == "File" && place != ""
}

// hashAt returns the hash below these keys, made where it is missing.
func hashAt(config map[string]any, keys ...string) (map[string]any, error) {
	for i, key := range keys {
		switch below := config[key].(type) {
		case nil:
			made := map[string]any{}
			config[key] = made
			config = made
		case map[string]any:
			config = below
		default:
			return nil, invalid("%s: %s is not a hash", agentConfig, strings.Join(keys[:i+1], "."))
		}
	}
	return config, nil
}

// initConfig is the configuration of an image that starts the stemcell's init on its own.
func initConfig(found *contents) (v1.Config, error) {
	if found.init == "" {
		return v1.Config{}, invalid("the root filesystem has no init program that is known: none of %s", strings.Join(inits, ", "))
	}
	config := v1.Config{Cmd: []string{found.init}}
	if !strings.HasSuffix(found.init, "runsvdir-start") {
		config.StopSignal = "SIGRTMIN+3" // systemd's for halting, see systemd(1)
		config.Env = []string{"container=kubernetes"}
	}
	return config, nil
}

// labels are the image's, for people and registries: https://github.com/opencontainers/image-spec/blob/main/annotations.md
func labels(name, version string, others map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, others)
	all["org.opencontainers.image.title"], all["org.opencontainers.image.version"] = name, version
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}
