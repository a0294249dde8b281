package cpi

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/cpi/vm"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/document"
	"bosh-kubernetes-cpi/stemcell"
)

// Config is the content of cpi.json, documented in docs/reference/configuration.md.
type Config struct {
	KubernetesOptions `json:"kubernetes"`
	Agent             agentsettings.Options `json:"agent"`
	// NodeImageLayout is the directory with the image of bosh-node, or "".
	NodeImageLayout string `json:"-"`
}

// KubernetesOptions are the settings of the CPI itself. Those for agents are next to them, as directors set them for all CPIs.
type KubernetesOptions struct {
	Cluster
	Network   network.Options  `json:"network"`
	Disk      disk.Options     `json:"disk"`
	Stemcell  stemcell.Options `json:"stemcell"`
	Pods      call.PodOptions  `json:"pods"`
	Timeouts  Timeouts         `json:"timeouts"`
	Log       LogOptions       `json:"log"`
	Events    EventOptions     `json:"events"`
	CPIConfig ConfigOptions    `json:"cpi_config"`
	// NodeImage is the reference of the image of bosh-node, with a digest. The default is the image of this version of the CPI, in the
	// registry for heavy stemcells, or as it was published with the release.
	NodeImage string `json:"node_image"`
}

// Cluster is the cluster, and the credentials for it.
type Cluster = kube.Options

// LogOptions configures the log on stderr, which the director keeps in the task's CPI log.
type LogOptions struct {
	// Level is debug, info, warn or error. At debug, the log includes requests and responses, with secrets redacted.
	Level string `json:"level"`
}

// DefaultConfig returns the defaults for keys that cpi.json omits.
func DefaultConfig() Config {
	return Config{KubernetesOptions: KubernetesOptions{
		Network:  network.DefaultOptions(),
		Pods:     call.DefaultPodOptions(),
		Timeouts: defaultTimeouts(),
		Log:      LogOptions{Level: "info"},
		Events:   EventOptions{Enabled: true},
	}}
}

// LoadConfig reads and validates cpi.json.
func LoadConfig(path string) (Config, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("cannot read the CPI's configuration: %w", err)
	}
	config := DefaultConfig()
	if program, err := os.Executable(); err == nil {
		config.NodeImageLayout = stemcell.NodeImageLayout(program)
	}
	var overriding overrides
	if json.Unmarshal(raw, &overriding) == nil { // Decode reports invalid JSON
		config.clearOverridden(overriding)
	}
	if err := document.Decode("", raw, &config); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	if err := config.Validate(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
}

// Validate returns the first error in the configuration.
func (c Config) Validate() error {
	for _, check := range []func() error{
		c.Cluster.Validate, c.Agent.Validate, c.Network.Validate, c.Disk.Validate, c.Stemcell.Validate,
		c.Pods.Validate, c.Timeouts.Validate, c.NodeImageStore(nil).Validate,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	_, err := c.Log.level()
	return err
}

// NewCall returns a call of the director. It has no context and no client for a cluster yet.
func (c Config) NewCall(director string, log *slog.Logger) *call.Call {
	return &call.Call{
		ID: call.NewID(), Started: time.Now(), Director: director, Subject: &call.Subject{}, PodOptions: c.Pods,
		NodeImage: c.NodeImageStore(log), Log: log,
	}
}

// VMSession returns the session of a call about VMs. stemcellAPI is the api_version of the VM's stemcell, or nil if it is not known.
func (c Config) VMSession(current *call.Call, stemcellAPI *int) *vm.Session {
	return &vm.Session{Call: current, Options: vm.Options{
		Agent: c.Agent, Network: c.Network, Disk: c.Disk, Stemcell: c.Stemcell, StemcellAPI: stemcellAPI,
		UnschedulableTimeout: c.Timeouts.Unschedulable.Duration, AttachTimeout: c.Timeouts.AttachDisk.Duration,
	}}
}

// NodeImageStore returns the image of bosh-node.
func (c Config) NodeImageStore(log *slog.Logger) stemcell.NodeImage {
	return stemcell.NodeImage{Store: stemcell.Store{Options: c.Stemcell, Log: log}, Configured: c.NodeImage, Layout: c.NodeImageLayout}
}

func (l LogOptions) level() (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return level, fmt.Errorf("kubernetes.log.level %q is not valid; use debug, info, warn or error", l.Level)
	}
	return level, nil
}
