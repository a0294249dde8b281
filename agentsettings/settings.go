// Package agentsettings builds the agent settings of a VM: settings.json for the BOSH agent, a patch of the agent's configuration, and
// files for the VM's start script.
//
// The formats are defined by settings/settings.go and app/config.go of cloudfoundry/bosh-agent. The package is independent of Kubernetes
// and of the CPI protocol.
package agentsettings

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// Options are the part of the CPI's configuration that applies to all agents.
type Options struct {
	// Mbus is the URL of the message bus: nats://… for the VMs of a director, https://… for the VM of create-env.
	Mbus string `json:"mbus"`
	// NTP is ignored, and accepted only because bosh-deployment always sets it. With time servers, the agent would run sync-time at each
	// boot and wait for chronyd, which does not run in containers: they use their node's clock.
	NTP []string `json:"ntp"`
	// Blobstore is the source of jobs and packages.
	Blobstore Blobstore `json:"blobstore"`
}

// Blobstore is the agent's blobstore: a provider (local, dav, s3, …) and its options.
type Blobstore struct {
	Provider string         `json:"provider"`
	Options  map[string]any `json:"options"`
}

// Validate checks the options. The error names the missing or invalid property.
func (o Options) Validate() error {
	if err := checkMbus(o.Mbus); err != nil {
		return err
	}
	if o.Blobstore.Provider == "" && len(o.Blobstore.Options) > 0 {
		return errors.New("agent.blobstore.provider is missing; agent.blobstore.options require it")
	}
	return nil
}

// checkMbus checks the URL of the message bus as the agent uses it: it connects to, or listens at, exactly this host and port (NewHandler
// of mbus/handler_provider.go, SetupNatsFirewall of platform/firewall). The errors do not contain the URL, which contains a password.
func checkMbus(mbus string) error {
	if mbus == "" {
		return errors.New("agent.mbus is missing; set it to the URL of the message bus, for example nats://nats:password@10.0.0.6:4222")
	}
	parsed, err := url.Parse(mbus)
	if err != nil && strings.Contains(mbus, "://") {
		return errors.New("agent.mbus is not a valid URL; percent-encode special characters of the user name and the password, " +
			"and put an IPv6 address in brackets")
	}
	if err != nil || parsed.Scheme != "nats" && parsed.Scheme != "https" {
		return errors.New("agent.mbus is not valid: it must begin with nats:// (VMs of a director) or https:// (VM of create-env)")
	}
	host, port, err := net.SplitHostPort(parsed.Host)
	switch number, portErr := strconv.ParseUint(port, 10, 16); {
	case strings.Count(parsed.Host, ":") > 1 && !strings.HasPrefix(parsed.Host, "["):
		return errors.New("agent.mbus is not valid: put the IPv6 address in brackets, for example [fd00::6]:4222")
	case host == "" && parsed.Scheme == "nats" && (err == nil || parsed.Host == ""):
		return errors.New("agent.mbus is not valid: the host is missing")
	case err != nil || portErr != nil || number == 0:
		return errors.New("agent.mbus is not valid: it requires a port from 1 to 65535, for example :4222")
	case parsed.Path != "" && parsed.Path != "/" || parsed.RawQuery != "" || parsed.Fragment != "":
		return errors.New("agent.mbus is not valid: text follows the port; percent-encode special characters of the user name and the password")
	}
	return nil
}

// HasServer reports whether agents listen for requests of the BOSH CLI. Other agents connect to the message bus of their director.
func (o Options) HasServer() bool { return strings.HasPrefix(o.Mbus, "https://") }

// Network is a network of a VM. All networks are preconfigured: the network plugin sets them up before the agent starts, and the agent
// configures only DNS.
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

// VM contains the arguments of create_vm that the agent settings depend on.
type VM struct {
	AgentID  string
	Name     string
	Networks map[string]Network
	Env      json.RawMessage // unchanged in the settings; contains credentials
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

// diskSettings is always empty: the start script sets up the ephemeral disk, and the director announces persistent disks to the agent by
// add_persistent_disk.
type diskSettings struct {
	System     string            `json:"system"`
	Persistent map[string]string `json:"persistent"`
}

// SettingsJSON returns the content of settings.json.
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
