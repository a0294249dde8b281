package cpi

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/stemcell"
)

// Config is the content of cpi.json, documented in docs/configuration.md.
type Config struct {
	Kubernetes kube.Options          `json:"kubernetes"`
	Agent      agentsettings.Options `json:"agent"`
	Network    network.Options       `json:"network"`
	Disk       disk.Options          `json:"disk"`
	Stemcell   stemcell.Options      `json:"stemcell"`
	Pods       call.PodOptions       `json:"pods"`
	Timeouts   Timeouts              `json:"timeouts"`
	Log        LogOptions            `json:"log"`
	Events     EventOptions          `json:"events"`
	CPIConfig  ConfigOptions         `json:"cpi_config"`
}

// ConfigOptions says what a kubeconfig in a director's cpi-config may make of the machine that the CPI runs on. It
// may do nothing by default: whoever may change a cpi-config could otherwise run programs there as the CPI's user, and
// send its files to a server of his own.
type ConfigOptions struct {
	// Commands are the programs that it may run for credentials, as the kubeconfig names them.
	Commands []string `json:"commands"`
	// Files are the paths of the files that it may read: kubeconfigs, tokens, certificates, keys.
	Files []string `json:"files"`
}

// checkHostAccess refuses what the cpi-config's options would run or read and may not.
func (o ConfigOptions) checkHostAccess(access kube.HostAccess) error {
	for _, command := range access.Commands {
		if !slices.Contains(o.Commands, command.Name) {
			return fmt.Errorf("%s may not run %q, since it comes by a cpi-config: put a token or a certificate into the kubeconfig "+
				"instead (token, client-certificate-data), or name the program in cpi_config.commands of cpi.json", command.Field, command.Name)
		}
	}
	for _, file := range access.Files {
		if !slices.Contains(o.Files, file.Name) {
			return fmt.Errorf("%s may not read the file %q, since it comes by a cpi-config: give its content instead "+
				"(kubeconfig, token, …-data), or name the file in cpi_config.files of cpi.json", file.Field, file.Name)
		}
	}
	return nil
}

// LogOptions say how much is written to stderr, which the director keeps in the task's CPI log.
type LogOptions struct {
	// Level is debug, info, warn or error. At debug, requests and responses are logged too, without
	// what is secret in them.
	Level string `json:"level"`
}

// DefaultConfig is what holds for keys that cpi.json leaves out.
func DefaultConfig() Config {
	return Config{
		Network:  network.DefaultOptions(),
		Pods:     call.DefaultPodOptions(),
		Timeouts: defaultTimeouts(),
		Log:      LogOptions{Level: "info"},
		Events:   EventOptions{Enabled: true},
	}
}

// LoadConfig reads and checks cpi.json.
func LoadConfig(path string) (Config, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("the CPI's configuration cannot be read (give its path with -configPath): %w", err)
	}
	config := DefaultConfig()
	var given overrides
	if json.Unmarshal(raw, &given) == nil { // what is wrong with it is told below
		config.clearOverridden(given)
	}
	if err := call.DecodeStrict(path, raw, &config); err != nil {
		return Config{}, err
	}
	if err := config.Validate(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
}

// Validate checks the whole configuration before anything is done with it.
func (c Config) Validate() error {
	for _, check := range []func() error{
		c.Kubernetes.Validate, c.Agent.Validate, c.Network.Validate, c.Disk.Validate, c.Stemcell.Validate,
		func() error { return validatePrefetch(c.Stemcell.Prefetch) }, c.Pods.Validate, c.Timeouts.Validate,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	_, err := c.Log.level()
	return err
}

func (l LogOptions) level() (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return level, fmt.Errorf("log.level %q is none of debug, info, warn, error", l.Level)
	}
	return level, nil
}

// overrides are the parts of cpi.json that a cpi-config may replace for the calls it applies to. The
// director merges a cpi-config's properties into the request's context at its top level, beside keys
// of its own, so that unknown keys there are not errors.
type overrides struct {
	Kubernetes json.RawMessage `json:"kubernetes"`
	Agent      json.RawMessage `json:"agent"`
	Network    json.RawMessage `json:"network"`
	Disk       json.RawMessage `json:"disk"`
	Stemcell   json.RawMessage `json:"stemcell"`
	Pods       json.RawMessage `json:"pods"`
	Timeouts   json.RawMessage `json:"timeouts"`
	Events     json.RawMessage `json:"events"`
}

// withOverrides returns the configuration for a request with this context.
func (c Config) withOverrides(context json.RawMessage) (Config, error) {
	var given overrides
	if len(context) > 0 {
		if err := json.Unmarshal(context, &given); err != nil {
			return c, fmt.Errorf("the request's context is not a hash: %w", err)
		}
	}
	if given.Kubernetes != nil {
		c.Kubernetes = kube.Options{} // another cluster shares nothing with this one
		c.Disk = disk.Options{}       // nor its PriorityClasses
	}
	if given.Stemcell != nil {
		c.Stemcell = stemcell.Options{} // nor does its registry
	}
	c.clearOverridden(given)
	for _, part := range []struct {
		name string
		raw  json.RawMessage
		into any
	}{
		{"kubernetes", given.Kubernetes, &c.Kubernetes}, {"agent", given.Agent, &c.Agent},
		{"network", given.Network, &c.Network}, {"disk", given.Disk, &c.Disk}, {"stemcell", given.Stemcell, &c.Stemcell},
		{"pods", given.Pods, &c.Pods}, {"timeouts", given.Timeouts, &c.Timeouts},
		{"events", given.Events, &c.Events},
	} {
		if part.raw == nil {
			continue
		}
		if err := call.DecodeStrict("the cpi-config's property "+part.name, part.raw, part.into); err != nil {
			return c, err
		}
	}
	if given.Kubernetes != nil {
		access, err := c.Kubernetes.HostAccess()
		if err != nil {
			return c, err
		}
		if err := c.CPIConfig.checkHostAccess(access); err != nil {
			return c, err
		}
	}
	return c, c.Validate()
}

// clearOverridden clears what is given anew as a whole: decoding would fill in what it leaves out.
func (c *Config) clearOverridden(given overrides) {
	if hasKey(given.Agent, "blobstore") {
		c.Agent.Blobstore = agentsettings.Blobstore{}
	}
	if hasKey(given.Network, "address_annotations") {
		c.Network.AddressAnnotations = nil
	}
	if hasKey(given.Pods, "labels") {
		c.Pods.Labels = nil
	}
	if hasKey(given.Pods, "annotations") {
		c.Pods.Annotations = nil
	}
	if hasKey(given.Pods, "helper_limits") {
		c.Pods.HelperLimits = nil
	}
}

func hasKey(part json.RawMessage, key string) bool {
	var keys map[string]json.RawMessage
	return json.Unmarshal(part, &keys) == nil && keys[key] != nil
}
