// Package agentsettings builds what a machine's BOSH agent is given when it starts: its settings.json, the
// change that its configuration needs, and what the machine's start script has to know of them.
//
// The formats are the agent's: settings/settings.go and app/config.go of cloudfoundry/bosh-agent. The package
// knows neither Kubernetes nor the CPI's protocol.
package agentsettings

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
)

// Options are what the operator configures for every agent.
type Options struct {
	// Mbus is the URL of the message bus: nats://… for a director's VMs, https://… for create-env's.
	Mbus string `json:"mbus"`
	// NTP are the time servers. No agent is told of them: at each boot it would run sync-time, which waits for chronyd, and
	// none runs in a container, which has its node's clock. They are accepted because bosh-deployment names some everywhere.
	NTP []string `json:"ntp"`
	// Blobstore is where the agent gets jobs and packages.
	Blobstore Blobstore `json:"blobstore"`
}

// Blobstore is the agent's blobstore: a provider (local, dav, s3 …) and its options.
type Blobstore struct {
	Provider string         `json:"provider"`
	Options  map[string]any `json:"options"`
}

// Validate names the property that is missing or malformed.
func (o Options) Validate() error {
	if o.Mbus == "" {
		return errors.New("agent.mbus is missing: set it to the URL of the message bus, for example nats://nats:password@10.0.0.6:4222")
	}
	if parsed, err := url.Parse(o.Mbus); err != nil || parsed.Scheme == "" || parsed.Host == "" {
		return errors.New("agent.mbus is not a URL with a scheme and a host") // the URL holds a password
	}
	if o.Blobstore.Provider == "" && len(o.Blobstore.Options) > 0 {
		return errors.New("agent.blobstore.provider is missing although agent.blobstore.options are set")
	}
	return nil
}

// Network is one of the machine's networks. All of them are preconfigured: the CNI has set them up
// before the agent starts, and the agent leaves them alone but for DNS.
type Network struct {
	Type          string   `json:"type"`
	IP            string   `json:"ip,omitempty"`
	Prefix        string   `json:"prefix,omitempty"`
	Netmask       string   `json:"netmask,omitempty"`
	Gateway       string   `json:"gateway,omitempty"`
	DNS           []string `json:"dns,omitempty"`
	Default       []string `json:"default,omitempty"`
	Preconfigured bool     `json:"preconfigured"`
}

// VM is what create_vm was told of one VM.
type VM struct {
	AgentID  string
	Name     string
	Networks map[string]Network
	Env      json.RawMessage // passed on as it came; it holds credentials
}

type settings struct {
	AgentID   string             `json:"agent_id"`
	VM        vmSettings         `json:"vm"`
	Mbus      string             `json:"mbus"`
	NTP       []string           `json:"ntp"`
	Blobstore Blobstore          `json:"blobstore"`
	Disks     diskSettings       `json:"disks"`
	Networks  map[string]Network `json:"networks"`
	Env       json.RawMessage    `json:"env"`
}

type vmSettings struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

// diskSettings names none: the machine has its disk from the start script, and learns of persistent disks
// by add_persistent_disk.
type diskSettings struct {
	System     string            `json:"system"`
	Persistent map[string]string `json:"persistent"`
}

// SettingsJSON is the content of settings.json.
func (o Options) SettingsJSON(vm VM) ([]byte, error) {
	env := vm.Env
	if len(env) == 0 || string(env) == "null" {
		env = json.RawMessage("{}")
	}
	networks := make(map[string]Network, len(vm.Networks))
	for name, network := range vm.Networks {
		network.Preconfigured = true
		networks[name] = network
	}
	content, err := json.Marshal(settings{
		AgentID:   vm.AgentID,
		VM:        vmSettings{Name: vm.Name, ID: vm.Name},
		Mbus:      o.Mbus,
		NTP:       []string{}, // see Options.NTP
		Blobstore: o.Blobstore,
		Disks:     diskSettings{Persistent: map[string]string{}},
		Networks:  networks,
		Env:       env,
	})
	if err != nil {
		return nil, fmt.Errorf("agent settings: %w", err)
	}
	return content, nil
}
