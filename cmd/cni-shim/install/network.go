package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/version"
)

// ErrNoNetwork means that the node has no network configuration yet that the shim could stand in.
var ErrNoNetwork = errors.New("no network configuration")

type object map[string]json.RawMessage

// oldest version of the specification that the shim serves.
const oldest = "0.3.1"

// extensions of files that runtimes read as networks (libcni's ConfFiles, which they all use).
var extensions = map[string]bool{".conf": true, ".conflist": true, ".json": true}

// original returns the path of the node's own network: the first in lexical order that is not the
// shim's.
func (o Options) original() (string, error) {
	entries, err := os.ReadDir(o.ConfigDir) // sorted by name
	if err != nil {
		return "", fmt.Errorf("look for the node's network: %w", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() || !extensions[filepath.Ext(name)] || name == configName {
			continue
		}
		if name < configName {
			return "", fmt.Errorf("the node's network %s sorts before %s, so that the shim would never be used: rename it",
				filepath.Join(o.ConfigDir, name), configName)
		}
		return filepath.Join(o.ConfigDir, name), nil
	}
	return "", fmt.Errorf("%w in %s: install the cluster's network plugin first", ErrNoNetwork, o.ConfigDir)
}

// wrapped returns the shim's network for the node's.
func (o Options) wrapped(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the node's network: %w", err)
	}
	var network object
	if err := json.Unmarshal(raw, &network); err != nil {
		return nil, fmt.Errorf("the node's network %s is not JSON: %w", path, err)
	}
	wrapped, err := wrap(network, o.entry())
	if err != nil {
		return nil, fmt.Errorf("the node's network %s: %w", path, err)
	}
	return wrapped, nil
}

// entry is the shim's part of its plugin entry.
func (o Options) entry() map[string]any {
	kubernetes := map[string]any{"kubeconfig": o.kubeconfig()}
	if o.Timeout > 0 {
		kubernetes["timeout"] = o.Timeout.Round(time.Millisecond).String()
	}
	entry := map[string]any{"type": PluginType, "kubernetes": kubernetes}
	if o.Annotation != "" {
		entry["annotation"] = o.Annotation
	}
	if len(o.Namespaces) > 0 {
		entry["namespaces"] = o.Namespaces
	}
	if len(o.Subnets) > 0 {
		entry["subnets"] = o.Subnets
	}
	return entry
}

// wrap puts the shim in the place of a network's first plugin. All else stays: name (by which address
// managers find what they gave before), cniVersion, the other plugins, and keys unknown here. A
// network of one plugin outside a list becomes a list (CNI specification 0.3.1 to 1.1.0, section 1).
func wrap(network object, entry map[string]any) ([]byte, error) {
	var plugins []object
	if network["plugins"] == nil {
		plugins = []object{network}
		network = object{"name": network["name"], "cniVersion": network["cniVersion"]}
	} else if err := json.Unmarshal(network["plugins"], &plugins); err != nil {
		return nil, fmt.Errorf("its plugins are not a list of hashes: %w", err)
	}
	for _, key := range []string{"name", "cniVersion"} {
		if text(network[key]) == "" {
			return nil, fmt.Errorf("it has no %s", key)
		}
	}
	if len(plugins) == 0 || text(plugins[0]["type"]) == "" {
		return nil, errors.New("it has no plugin with a type")
	}
	if text(plugins[0]["type"]) == PluginType {
		return nil, fmt.Errorf("its first plugin is %s already", PluginType)
	}
	if enough, err := version.GreaterThanOrEqualTo(text(network["cniVersion"]), oldest); err != nil || !enough {
		return nil, fmt.Errorf("its cniVersion is %s, but the shim needs %s or later", text(network["cniVersion"]), oldest)
	}
	entry["delegate"] = plugins[0]
	if capabilities := plugins[0]["capabilities"]; capabilities != nil {
		entry["capabilities"] = capabilities // by which the runtime decides what to put into runtimeConfig
	}
	first, err := json.Marshal(entry)
	if err != nil {
		return nil, err
	}
	all := []json.RawMessage{first}
	for _, plugin := range plugins[1:] {
		raw, err := json.Marshal(plugin)
		if err != nil {
			return nil, err
		}
		all = append(all, raw)
	}
	if network["plugins"], err = json.Marshal(all); err != nil {
		return nil, err
	}
	return json.MarshalIndent(network, "", "  ")
}

// text returns a JSON string; empty for anything else.
func text(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}
