package cpi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"bosh-kubernetes-cpi/agentsettings"
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
}

// AddressAnnotation is one annotation by which a network plugin takes addresses.
type AddressAnnotation struct {
	// Name is the annotation's name.
	Name string `json:"name"`
	// Value is a text/template of the annotation's value. It sees .IPs, the addresses, and the
	// functions json and join.
	Value string `json:"value"`
}

// DefaultNetworkOptions suit Calico and the project's CNI shim; each ignores the other's annotation.
func DefaultNetworkOptions() NetworkOptions {
	return NetworkOptions{AddressAnnotations: []AddressAnnotation{
		{Name: "cni.projectcalico.org/ipAddrs", Value: `{{json .IPs}}`},
		{Name: "bosh.cloudfoundry.org/ip-address", Value: `{{join .IPs ","}}`},
	}}
}

// Validate tries every template.
func (o NetworkOptions) Validate() error {
	_, err := o.annotations([]string{"192.0.2.1"})
	return err
}

// annotations answers the Pod annotations that ask for these addresses.
func (o NetworkOptions) annotations(addresses []string) (map[string]string, error) {
	if len(addresses) == 0 {
		return nil, nil
	}
	functions := template.FuncMap{
		"json": func(v any) (string, error) { raw, err := json.Marshal(v); return string(raw), err },
		"join": func(list []string, separator string) string { return strings.Join(list, separator) },
	}
	annotations := make(map[string]string, len(o.AddressAnnotations))
	for i, annotation := range o.AddressAnnotations {
		if len(validation.IsQualifiedName(annotation.Name)) > 0 {
			return nil, fmt.Errorf("network.address_annotations[%d].name %q is not an annotation's name", i, annotation.Name)
		}
		parsed, err := template.New("value").Funcs(functions).Parse(annotation.Value)
		if err != nil {
			return nil, fmt.Errorf("network.address_annotations[%d].value is not a template: %w", i, err)
		}
		var value bytes.Buffer
		if err := parsed.Execute(&value, struct{ IPs []string }{addresses}); err != nil {
			return nil, fmt.Errorf("network.address_annotations[%d].value: %w", i, err)
		}
		annotations[annotation.Name] = value.String()
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

	// CloudProperties are read for vip networks alone; see vipProperties.
	CloudProperties json.RawMessage `json:"cloud_properties"`

	sent json.RawMessage
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

// names answers the networks' names in a fixed order.
func (ns Networks) names() []string { return slices.Sorted(maps.Keys(ns)) }

// validate names the network and field that are wrong.
func (ns Networks) validate() error {
	families := map[bool]string{}
	for name, network := range ns {
		switch network.Type {
		case networkDynamic, networkVIP:
		case networkManual, "":
			address, err := netip.ParseAddr(network.IP)
			if err != nil {
				return invalid("networks.%s.ip %q is not an IP address; a manual network needs one", name, network.IP)
			}
			if other, taken := families[address.Is4()]; taken {
				return typed(typeNotSupported, "networks %s and %s both ask for an address of the same IP family: "+
					"a Pod has one IPv4 and one IPv6 address", min(other, name), max(other, name))
			}
			families[address.Is4()] = name
		default:
			return invalid("networks.%s.type %q is none of manual, dynamic, vip", name, network.Type)
		}
	}
	return nil
}

// addresses answers the static addresses, IPv4 first. Only the type decides: the director sends
// dynamic networks with an address that a former VM had.
func (ns Networks) addresses() []string {
	var found []netip.Addr
	for _, network := range ns {
		if network.Type == networkManual || network.Type == "" {
			if address, err := netip.ParseAddr(network.IP); err == nil {
				found = append(found, address)
			}
		}
	}
	slices.SortFunc(found, netip.Addr.Compare)
	texts := make([]string, 0, len(found))
	for _, address := range found {
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
	for name, network := range ns {
		if network.Type != networkManual && network.Type != "" {
			continue
		}
		wanted, err := netip.ParseAddr(network.IP)
		if err != nil {
			return err
		}
		if !slices.Contains(has, wanted.String()) {
			return typed(typeVMFailed, "network %s wants the address %s, but the Pod got %s: the cluster's network plugin does not honour the "+
				"annotations of network.address_annotations, or its IP pools do not hold that address", name, network.IP, strings.Join(has, ", "))
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
