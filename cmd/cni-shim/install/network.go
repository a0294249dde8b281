package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/version"

	"bosh-kubernetes-cpi/kube/document"
)

// ErrNoNetwork means that the node does not have a network configuration yet.
var ErrNoNetwork = errors.New("no network configuration")

type object map[string]json.RawMessage

// oldestVersion is the oldest version of the specification that the shim supports.
const oldestVersion = "0.3.1"

// extensions are the extensions of network configurations, as in libcni's ConfFiles, which all runtimes use.
var extensions = map[string]bool{".conf": true, ".conflist": true, ".json": true}

// findOriginalNetwork returns the path of the node's own network configuration: the first one in lexical order, except the shim's.
func (o Options) findOriginalNetwork() (string, error) {
	entries, err := os.ReadDir(o.ConfigDir) // sorted by name
	if err != nil {
		return "", fmt.Errorf("list network configurations: %w", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() || !extensions[filepath.Ext(name)] || name == configName {
			continue
		}
		if name < configName {
			return "", fmt.Errorf("network configuration %s sorts before the shim's %s, but runtimes use only the first one; rename it",
				filepath.Join(o.ConfigDir, name), configName)
		}
		return filepath.Join(o.ConfigDir, name), nil
	}
	return "", fmt.Errorf("%w in %s; install the cluster's network plugin first", ErrNoNetwork, o.ConfigDir)
}

// renderNetwork returns the network configuration at path with the shim inserted.
func (o Options) renderNetwork(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the network configuration: %w", err)
	}
	var network object
	if err := document.Unmarshal("network configuration "+path, raw, &network); err != nil {
		return nil, err
	}
	rendered, err := insertShim(network, o.shimEntry())
	if err != nil {
		return nil, fmt.Errorf("network configuration %s: %w", path, err)
	}
	return rendered, nil
}

// shimEntry returns the plugin entry of the shim, without its delegate.
func (o Options) shimEntry() map[string]any {
	kubernetes := map[string]any{"kubeconfig": o.kubeconfigPath()}
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

// insertShim replaces the first plugin of a network with the shim. It keeps everything else: the name (the key under which IPAM
// plugins store allocations), cniVersion, the other plugins, and unknown keys. It converts a configuration of a single plugin to a
// list (CNI specification 0.3.1 to 1.1.0, section 1).
func insertShim(network object, entry map[string]any) ([]byte, error) {
	var plugins []object
	if network["plugins"] == nil {
		plugins = []object{network}
		network = object{"name": network["name"], "cniVersion": network["cniVersion"]}
	} else if err := document.Unmarshal("plugins", network["plugins"], &plugins); err != nil {
		return nil, err
	}
	for _, key := range []string{"name", "cniVersion"} {
		if jsonString(network[key]) == "" {
			return nil, fmt.Errorf("%s is missing", key)
		}
	}
	if len(plugins) == 0 || jsonString(plugins[0]["type"]) == "" {
		return nil, errors.New("the first plugin has no type")
	}
	switch first := jsonString(plugins[0]["type"]); first {
	case PluginType:
		return nil, fmt.Errorf("the first plugin is already %s", PluginType)
	case "multus", "multus-shim": // it delegates to the first other configuration: the shim's
		return nil, fmt.Errorf("the first plugin is %s, with which the shim does not work; uninstall one of them", first)
	}
	if supported, err := version.GreaterThanOrEqualTo(jsonString(network["cniVersion"]), oldestVersion); err != nil || !supported {
		return nil, fmt.Errorf("cniVersion is %s, but the shim requires %s or later", jsonString(network["cniVersion"]), oldestVersion)
	}
	entry["delegate"] = plugins[0]
	if capabilities := plugins[0]["capabilities"]; capabilities != nil {
		entry["capabilities"] = capabilities // the runtime derives runtimeConfig from them
	}
	entries := []any{entry}
	for _, plugin := range plugins[1:] {
		entries = append(entries, plugin)
	}
	var err error
	if network["plugins"], err = json.Marshal(entries); err != nil {
		return nil, err
	}
	return json.MarshalIndent(network, "", "  ")
}

// jsonString decodes a JSON string. It returns "" for any other value.
func jsonString(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}
