package cpi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Types of networks.
const (
	networkManual  = "manual"
	networkDynamic = "dynamic"
	networkVIP     = "vip"
)

// NetworkOptions say how a static address is asked of the cluster's network plugin.
type NetworkOptions struct {
	// AddressAnnotations are put on the Pod of a VM with a manual network.
	AddressAnnotations []AddressAnnotation `json:"address_annotations"`
	// KeepDynamicAddresses asks for a dynamic network's address again when the Pod's sandbox has to be
	// made anew, by the same annotations.
	KeepDynamicAddresses bool `json:"keep_dynamic_addresses"`
}

// AddressAnnotation is one annotation by which a network plugin takes addresses.
type AddressAnnotation struct {
	// Name is the annotation's name.
	Name string `json:"name"`
	// Value is the annotation's value, with {{json .IPs}}, {{join .IPs ","}} and {{index .IPs 0}} for the
	// addresses.
	Value string `json:"value"`
}

// DefaultNetworkOptions suit Calico and the project's CNI shim; each ignores the other's annotation.
func DefaultNetworkOptions() NetworkOptions {
	return NetworkOptions{
		AddressAnnotations: []AddressAnnotation{
			{Name: "cni.projectcalico.org/ipAddrs", Value: `{{json .IPs}}`},
			{Name: manifest.AnnotationAddress, Value: `{{join .IPs ","}}`},
		},
		KeepDynamicAddresses: true,
	}
}

// Validate tries every annotation.
func (o NetworkOptions) Validate() error {
	_, err := o.annotations([]string{"192.0.2.1"})
	return err
}

// annotations answers the Pod annotations that ask for these addresses.
func (o NetworkOptions) annotations(addresses []string) (map[string]string, error) {
	if len(addresses) == 0 {
		return nil, nil
	}
	annotations := make(map[string]string, len(o.AddressAnnotations))
	for i, annotation := range o.AddressAnnotations {
		if len(validation.IsQualifiedName(annotation.Name)) > 0 {
			return nil, fmt.Errorf("network.address_annotations[%d].name %q is not an annotation's name", i, annotation.Name)
		}
		if annotation.Value == "" {
			return nil, fmt.Errorf("network.address_annotations[%d].value is missing: it is where the addresses are to stand", i)
		}
		value, err := addressText(annotation.Value, addresses)
		if err != nil {
			return nil, fmt.Errorf("network.address_annotations[%d].value: %w", i, err)
		}
		annotations[annotation.Name] = value
	}
	return annotations, nil
}

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

	CloudProperties networkProperties `json:"cloud_properties"`

	sent json.RawMessage
}

// networkProperties are a network's cloud_properties. They are read leniently, since directors send
// them with keys for others; a vip network's strictly, see vipProperties.
type networkProperties struct {
	// NetworkAttachment names a NetworkAttachmentDefinition of Multus: name, or namespace/name.
	NetworkAttachment string `json:"network_attachment"`

	sent json.RawMessage
}

// UnmarshalJSON keeps the original beside the fields.
func (p *networkProperties) UnmarshalJSON(raw []byte) error {
	type fields networkProperties
	if err := json.Unmarshal(raw, (*fields)(p)); err != nil {
		return err
	}
	p.sent = slices.Clone(raw)
	return nil
}

// UnmarshalJSON keeps the original beside the fields.
func (n *Network) UnmarshalJSON(raw []byte) error {
	type fields Network
	if err := json.Unmarshal(raw, (*fields)(n)); err != nil {
		return err
	}
	n.sent = slices.Clone(raw)
	return nil
}

// MarshalJSON answers what was sent.
func (n Network) MarshalJSON() ([]byte, error) { return n.sent, nil }

func (n Network) manual() bool { return n.Type == networkManual || n.Type == "" }

// names answers the networks' names in a fixed order.
func (ns Networks) names() []string { return slices.Sorted(maps.Keys(ns)) }

// validate names the network and field that are wrong.
func (ns Networks) validate() error {
	families := map[bool]string{}
	for name, network := range ns {
		if err := network.validateAttachment(name); err != nil {
			return err
		}
		switch network.Type {
		case networkDynamic, networkVIP:
		case networkManual, "":
			address, err := netip.ParseAddr(network.IP)
			if err != nil {
				return invalid("networks.%s.ip %q is not an IP address; a manual network needs one", name, network.IP)
			}
			if err := network.validatePrefix(name); err != nil {
				return err
			}
			if network.attached() {
				continue
			}
			if other, taken := families[address.Is4()]; taken {
				return typed(typeNotSupported, "networks %s and %s both ask for an address of the same IP family: "+
					"a Pod has one IPv4 and one IPv6 address, and others by the cloud_property network_attachment",
					min(other, name), max(other, name))
			}
			families[address.Is4()] = name
		default:
			return invalid("networks.%s.type %q is none of manual, dynamic, vip", name, network.Type)
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
		return typed(typeNotSupported, "networks.%s.prefix %s delegates a range to the machine: a Pod has single addresses, "+
			"so remove the prefix from the network's subnets", name, prefix)
	}
}

// addresses answers the static addresses of the Pod's own interface, IPv4 first. Only the type decides: the director sends
// dynamic networks with an address that a former VM had.
func (ns Networks) addresses() []string {
	var found []netip.Addr
	for _, network := range ns {
		if network.manual() && !network.attached() {
			if address, err := netip.ParseAddr(network.IP); err == nil {
				found = append(found, address)
			}
		}
	}
	return inOrder(found)
}

// inOrder answers the addresses as text, IPv4 first.
func inOrder(addresses []netip.Addr) []string {
	slices.SortFunc(addresses, netip.Addr.Compare)
	texts := make([]string, 0, len(addresses))
	for _, address := range addresses {
		texts = append(texts, address.String())
	}
	return texts
}

// verify compares the addresses that BOSH chose with those that the Pod has.
func (ns Networks) verify(pod *corev1.Pod) error {
	var has []string
	for _, ip := range pod.Status.PodIPs {
		has = append(has, ip.IP)
	}
	got := strings.Join(has, ", ")
	if got == "" {
		got = "no address"
	}
	for name, network := range ns {
		if !network.manual() {
			continue
		}
		if network.attached() {
			if err := network.verifyAttached(name, pod); err != nil {
				return err
			}
			continue
		}
		wanted, err := netip.ParseAddr(network.IP)
		if err != nil {
			return err
		}
		if !slices.Contains(has, wanted.String()) {
			return typed(typeVMFailed, "%w: network %s wants the address %s, but the Pod got %s: the cluster's network plugin does not honour the "+
				"annotations of network.address_annotations, or its IP pools do not hold that address", errAddress, name, network.IP, got)
		}
	}
	return nil
}

// forAgent answers the networks as the agent wants them.
func (ns Networks) forAgent() map[string]agentsettings.Network {
	networks := make(map[string]agentsettings.Network, len(ns))
	for name, network := range ns {
		forAgent := agentsettings.Network{Type: network.Type, DNS: network.DNS, Default: network.Default}
		if network.Type != networkDynamic {
			forAgent.IP, forAgent.Netmask, forAgent.Gateway = network.IP, network.Netmask, network.Gateway
		}
		networks[name] = forAgent
	}
	return networks
}
