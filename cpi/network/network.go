// Package network handles the networks of a VM: it validates them, requests their addresses from the cluster's network plugin with
// annotations of the VM Pod, verifies the addresses of the Pod, and builds the networks in the agent settings.
//
// It is independent of the packages about VMs and disks.
package network

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/cpi/call"
)

// Types of networks. A network without a type is Manual.
const (
	Manual  = "manual"
	Dynamic = "dynamic"
	VIP     = "vip"
)

// Networks are the networks of a VM by name: the argument networks of create_vm.
type Networks map[string]Network

// Network is a network of a VM. It keeps the director's JSON, because create_vm returns it unchanged.
type Network struct {
	Type    string          `json:"type"`
	IP      string          `json:"ip"`
	Prefix  json.RawMessage `json:"prefix"` // a string; also sent for networks without a prefix
	Netmask string          `json:"netmask"`
	Gateway string          `json:"gateway"`
	DNS     []string        `json:"dns"`
	Default []string        `json:"default"`

	CloudProperties Properties `json:"cloud_properties"`

	raw json.RawMessage
}

// Properties are the cloud_properties of a network. Unknown keys are ignored, because directors add keys that are not for the CPI. For a
// vip network, package vm decodes Raw and rejects unknown keys.
type Properties struct {
	// NetworkAttachment refers to a NetworkAttachmentDefinition of Multus: name, or namespace/name.
	NetworkAttachment string `json:"network_attachment"`

	raw json.RawMessage
}

// Raw returns the JSON of the properties, for network types with more properties.
func (p Properties) Raw() json.RawMessage { return p.raw }

// UnmarshalJSON decodes the fields, and keeps the JSON.
func (p *Properties) UnmarshalJSON(raw []byte) error {
	type fields Properties
	if err := json.Unmarshal(raw, (*fields)(p)); err != nil {
		return err
	}
	p.raw = slices.Clone(raw)
	return nil
}

// UnmarshalJSON decodes the fields, and keeps the JSON.
func (n *Network) UnmarshalJSON(raw []byte) error {
	type fields Network
	if err := json.Unmarshal(raw, (*fields)(n)); err != nil {
		return err
	}
	n.raw = slices.Clone(raw)
	return nil
}

// MarshalJSON returns the JSON that was decoded.
func (n Network) MarshalJSON() ([]byte, error) { return n.raw, nil }

func (n Network) isManual() bool { return n.Type == Manual || n.Type == "" }

// Names returns the names of the networks, sorted.
func (ns Networks) Names() []string { return slices.Sorted(maps.Keys(ns)) }

// Validate checks the networks. Its errors name the invalid network and field.
func (ns Networks) Validate() error {
	nameByFamily := map[bool]string{} // true is IPv4
	for _, name := range ns.Names() {
		network := ns[name]
		if err := network.validateNetworkAttachment(name); err != nil {
			return err
		}
		switch network.Type {
		case Dynamic, VIP:
		case Manual, "":
			address, err := netip.ParseAddr(network.IP)
			if err != nil {
				return call.InvalidPropertyf("networks.%s.ip %q is not an IP address; a manual network requires one", name, network.IP)
			}
			if err := network.validatePrefix(name); err != nil {
				return err
			}
			if network.hasNetworkAttachment() {
				continue
			}
			if other, exists := nameByFamily[address.Is4()]; exists {
				return call.CodeNetworkUnsupported.Errorf("networks %s and %s request addresses of the same IP family, but a Pod has only one "+
					"per family; set cloud_properties.network_attachment on one of them", min(other, name), max(other, name))
			}
			nameByFamily[address.Is4()] = name
		default:
			return call.InvalidPropertyf("networks.%s.type %q is not valid; use manual, dynamic or vip", name, network.Type)
		}
	}
	return nil
}

// validatePrefix rejects a range that is delegated to the VM. The director sends a prefix for each network, usually of a single
// address.
func (n Network) validatePrefix(name string) error {
	switch prefix := strings.Trim(string(n.Prefix), `"`); prefix {
	case "", "null", "32", "128":
		return nil
	default:
		return call.CodeNetworkUnsupported.Errorf("networks.%s.prefix %s delegates a range to the VM, but Pods support only single addresses; "+
			"remove prefix from the network's subnets", name, prefix)
	}
}

// ForAgent returns the networks for the agent settings.
func (ns Networks) ForAgent() map[string]agentsettings.Network {
	networks := make(map[string]agentsettings.Network, len(ns))
	for name, network := range ns {
		forAgent := agentsettings.Network{Type: network.Type, DNS: network.DNS, Default: network.Default}
		if network.Type != Dynamic {
			forAgent.IP, forAgent.Netmask, forAgent.Gateway = network.IP, network.Netmask, network.Gateway
		}
		networks[name] = forAgent
	}
	return networks
}
