// Package network reads the networks of a VM as the director sends them: which addresses its Pod asks the
// cluster's network plugin for, whether it got them, and what its agent is told. It also keeps the ranges of
// networks that BOSH manages.
//
// It knows neither machines nor disks.
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

// Types of networks; one without a type is Manual.
const (
	Manual  = "manual"
	Dynamic = "dynamic"
	VIP     = "vip"
)

// Networks are a VM's networks by name, as create_vm gets them.
type Networks map[string]Network

// Network is one of them. It keeps all that the director sent, to answer it unchanged.
type Network struct {
	Type    string          `json:"type"`
	IP      string          `json:"ip"`
	Prefix  json.RawMessage `json:"prefix"` // a string from the director, also on networks without one
	Netmask string          `json:"netmask"`
	Gateway string          `json:"gateway"`
	DNS     []string        `json:"dns"`
	Default []string        `json:"default"`

	CloudProperties Properties `json:"cloud_properties"`

	raw json.RawMessage
}

// Properties are a network's cloud_properties. They are read leniently, since directors send
// them with keys for others; a vip network's strictly, see Sent.
type Properties struct {
	// NetworkAttachment names a NetworkAttachmentDefinition of Multus: name, or namespace/name.
	NetworkAttachment string `json:"network_attachment"`

	raw json.RawMessage
}

// Raw returns the properties as they came, for types of networks with further ones.
func (p Properties) Raw() json.RawMessage { return p.raw }

// UnmarshalJSON keeps the original beside the fields.
func (p *Properties) UnmarshalJSON(raw []byte) error {
	type fields Properties
	if err := json.Unmarshal(raw, (*fields)(p)); err != nil {
		return err
	}
	p.raw = slices.Clone(raw)
	return nil
}

// UnmarshalJSON keeps the original beside the fields.
func (n *Network) UnmarshalJSON(raw []byte) error {
	type fields Network
	if err := json.Unmarshal(raw, (*fields)(n)); err != nil {
		return err
	}
	n.raw = slices.Clone(raw)
	return nil
}

// MarshalJSON returns what was sent.
func (n Network) MarshalJSON() ([]byte, error) { return n.raw, nil }

func (n Network) manual() bool { return n.Type == Manual || n.Type == "" }

// Names returns the networks' names in a fixed order.
func (ns Networks) Names() []string { return slices.Sorted(maps.Keys(ns)) }

// Validate names the network and field that are wrong.
func (ns Networks) Validate() error {
	families := map[bool]string{}
	for _, name := range ns.Names() {
		network := ns[name]
		if err := network.validateNIC(name); err != nil {
			return err
		}
		switch network.Type {
		case Dynamic, VIP:
		case Manual, "":
			address, err := netip.ParseAddr(network.IP)
			if err != nil {
				return call.Invalid("networks.%s.ip %q is not an IP address; a manual network needs one", name, network.IP)
			}
			if err := network.validatePrefix(name); err != nil {
				return err
			}
			if network.isNIC() {
				continue
			}
			if other, taken := families[address.Is4()]; taken {
				return call.NotSupported.Errorf("networks %s and %s both ask for an address of the same IP family: "+
					"a Pod has one IPv4 and one IPv6 address, and others by the cloud_property network_attachment",
					min(other, name), max(other, name))
			}
			families[address.Is4()] = name
		default:
			return call.Invalid("networks.%s.type %q is none of manual, dynamic, vip", name, network.Type)
		}
	}
	return nil
}

// validatePrefix refuses a delegated range: the director sends the prefix of a single address on any
// network.
func (n Network) validatePrefix(name string) error {
	switch prefix := strings.Trim(string(n.Prefix), `"`); prefix {
	case "", "null", "32", "128":
		return nil
	default:
		return call.NotSupported.Errorf("networks.%s.prefix %s delegates a range to the machine: a Pod has single addresses, "+
			"so remove the prefix from the network's subnets", name, prefix)
	}
}

// ForAgent returns the networks as the agent wants them.
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
