package cpi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/document"
	"bosh-kubernetes-cpi/stemcell"
)

// ConfigOptions limits the access of a cpi-config's kubeconfig to the host of the CPI. By default, it has none: otherwise a user
// who may change a cpi-config could run programs on that host as the CPI's user, and send its files to any server.
type ConfigOptions struct {
	// AllowedCommands are the programs that it may run for credentials, by their names in the kubeconfig.
	AllowedCommands []string `json:"allowed_commands"`
	// AllowedFiles are the paths of the files that it may read: kubeconfigs, tokens, certificates, keys.
	AllowedFiles []string `json:"allowed_files"`
}

// checkHostAccess returns an error if the kubeconfig would run a program or read a file that is not allowed.
func (o ConfigOptions) checkHostAccess(access kube.HostAccess) error {
	for _, command := range access.Commands {
		if !slices.Contains(o.AllowedCommands, command.Name) {
			return fmt.Errorf("cpi-config: %s must not run program %q; put a token or a certificate into the kubeconfig "+
				"(token, client-certificate-data), or list the program in kubernetes.cpi_config.allowed_commands of cpi.json",
				command.Field, command.Name)
		}
	}
	for _, file := range access.Files {
		if !slices.Contains(o.AllowedFiles, file.Name) {
			return fmt.Errorf("cpi-config: %s must not refer to file %q of this host; use its content "+
				"(kubeconfig, token, …-data), or list the file in kubernetes.cpi_config.allowed_files of cpi.json",
				file.Field, file.Name)
		}
	}
	return nil
}

// overrides are the parts of cpi.json that a cpi-config may override for its calls. The director merges a cpi-config's properties
// into the top level of the request's context, next to its own keys: unknown keys there are not errors.
type overrides struct {
	Kubernetes json.RawMessage `json:"kubernetes"`
	Agent      json.RawMessage `json:"agent"`
}

// withOverrides returns the configuration for a request with this context.
func (c Config) withOverrides(context json.RawMessage) (Config, error) {
	var overriding overrides
	if err := document.DecodeKnown("request context", context, &overriding); err != nil {
		return c, err
	}
	if err := checkContext(context); err != nil {
		return c, err
	}
	settings := jsonKeys(overriding.Kubernetes)
	otherCluster := slices.ContainsFunc(slices.Collect(maps.Keys(settings)), func(key string) bool {
		return isSet(settings[key]) && document.HasKey(Cluster{}, key)
	})
	if otherCluster {
		c.Cluster = Cluster{}   // the settings of this cluster do not apply to another
		c.Disk = disk.Options{} // it names PriorityClasses of this cluster
	}
	if isSet(settings["stemcell"]) {
		c.Stemcell = stemcell.Options{} // including the credentials of this registry
		c.NodeImage = ""                // it may be in this registry
	}
	c.clearOverridden(overriding)
	if err := document.Decode("the cpi-config's property kubernetes", overriding.Kubernetes, &c.KubernetesOptions); err != nil {
		return c, err
	}
	if err := document.Decode("the cpi-config's property agent", overriding.Agent, &c.Agent); err != nil {
		return c, err
	}
	if otherCluster {
		access, err := c.HostAccess()
		if err != nil {
			return c, err
		}
		if err := c.CPIConfig.checkHostAccess(access); err != nil {
			return c, err
		}
	}
	return c, c.Validate()
}

// checkContext rejects a cpi-config with settings of the job, and with keys of this CPI at the wrong place, or misspelled: its calls would
// use the job's cluster.
func checkContext(context json.RawMessage) error {
	keys := jsonKeys(context)
	settings := jsonKeys(keys["kubernetes"])
	jobOnly := []string{"log", "cpi_config"}
	for _, key := range jobOnly {
		if isSet(settings[key]) {
			return fmt.Errorf("cpi-config: property kubernetes.%s is only for the job kubernetes_cpi; move it there", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if (key == "env" || slices.Contains(jobOnly, key)) && isSet(keys[key]) {
			return fmt.Errorf("cpi-config: property %s is only for the job kubernetes_cpi; move it there", key)
		}
		if section, found := sectionWith(key); found {
			return fmt.Errorf("cpi-config: property %s must be in the hash %s", key, section)
		}
		if key == "vm" || document.HasKey(overrides{}, key) {
			continue
		}
		if similar := document.MisspelledKey(overrides{}, key); similar != "" {
			return fmt.Errorf("cpi-config: unknown property %s (did you mean %q?)", key, similar)
		}
		for _, inner := range slices.Sorted(maps.Keys(jsonKeys(keys[key]))) {
			if _, found := sectionWith(inner); found || document.HasKey(overrides{}, inner) {
				return fmt.Errorf("cpi-config: property %s must not be in the hash %s; move it to properties", inner, key)
			}
		}
	}
	return nil
}

// sectionWith returns the section of cpi.json that has a property of this name, if the name cannot be a key of a director's request
// context.
func sectionWith(key string) (section string, found bool) {
	if key == keyRequest || key == keyOther { // timeouts with general names
		return "", false
	}
	for _, candidate := range []struct {
		section string
		fields  any
	}{{"kubernetes", KubernetesOptions{}}, {"agent", agentsettings.Options{}}, {"kubernetes.stemcell", stemcell.Options{}},
		{"kubernetes.network", network.Options{}}, {"kubernetes.disk", disk.Options{}}, {"kubernetes.pods", call.PodOptions{}},
		{"kubernetes.timeouts", Timeouts{}}} {
		if document.HasKey(candidate.fields, key) {
			return candidate.section, true
		}
	}
	return "", false
}

// clearOverridden clears the overridden blobstore, lists and maps. They are replaced as a whole, but decoding would merge them with
// their current content.
func (c *Config) clearOverridden(overriding overrides) {
	if isSet(jsonKeys(overriding.Agent)["blobstore"]) {
		c.Agent.Blobstore = agentsettings.Blobstore{}
	}
	settings := jsonKeys(overriding.Kubernetes)
	if isSet(jsonKeys(settings["network"])["address_annotations"]) {
		c.Network.AddressAnnotations = nil
	}
	for key, reset := range map[string]func(){
		"labels":          func() { c.Pods.Labels = nil },
		"annotations":     func() { c.Pods.Annotations = nil },
		"helper_requests": func() { c.Pods.HelperRequests = nil },
		"helper_limits":   func() { c.Pods.HelperLimits = nil },
	} {
		if isSet(jsonKeys(settings["pods"])[key]) {
			reset()
		}
	}
}

// isSet reports whether a value is neither missing nor null.
func isSet(raw json.RawMessage) bool { return raw != nil && string(raw) != "null" }

// jsonKeys returns the values of a JSON object by key, or nil for other values.
func jsonKeys(raw json.RawMessage) (keys map[string]json.RawMessage) {
	_ = json.Unmarshal(raw, &keys)
	return keys
}
