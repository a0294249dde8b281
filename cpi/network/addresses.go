package network

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
)

// PodAnnotations returns the annotations of the VM Pod: those in its cloud_properties, and those that request addresses and network
// attachments.
func (ns Networks) PodAnnotations(options Options, properties map[string]string) (map[string]string, error) {
	requested, err := options.Annotations(ns.StaticAddresses())
	if err != nil {
		return nil, err
	}
	attachments, err := ns.networkAttachmentAnnotations()
	if err != nil {
		return nil, err
	}
	if _, set := properties[annotationNetworks]; set && len(attachments) > 0 {
		return nil, call.InvalidPropertyf("cloud_properties.annotations.%s and network_attachment of a network are mutually exclusive; "+
			"define each network attachment as a network", annotationNetworks)
	}
	annotations := map[string]string{}
	for _, source := range []map[string]string{properties, requested, attachments} {
		maps.Copy(annotations, source)
	}
	return annotations, nil
}

// StaticAddresses returns the static addresses of the Pod's primary interface, IPv4 first. It ignores addresses of dynamic
// networks: the director resends those of a previous VM.
func (ns Networks) StaticAddresses() []string {
	var addresses []netip.Addr
	for _, network := range ns {
		if network.isManual() && !network.hasNetworkAttachment() {
			if address, err := netip.ParseAddr(network.IP); err == nil {
				addresses = append(addresses, address)
			}
		}
	}
	return sortedStrings(addresses)
}

// sortedStrings returns the addresses as strings, IPv4 first.
func sortedStrings(addresses []netip.Addr) []string {
	slices.SortFunc(addresses, netip.Addr.Compare)
	sorted := make([]string, 0, len(addresses))
	for _, address := range addresses {
		sorted = append(sorted, address.String())
	}
	return sorted
}

// DescribeRequestedAddresses returns the addresses assigned by BOSH, with the names of their networks. It includes those of network
// attachments.
func (ns Networks) DescribeRequestedAddresses() string {
	var assigned []string
	for _, name := range ns.Names() {
		if network := ns[name]; network.isManual() {
			assigned = append(assigned, network.IP+" (network "+name+")")
		}
	}
	return strings.Join(assigned, ", ")
}

// KeepsDynamicAddress reports whether a Pod keeps its dynamic address when the Pod or its sandbox is recreated. It does not if the
// Pod overrides the cluster's default network, because the configured annotations are for that network's plugin.
func (o Options) KeepsDynamicAddress(networks Networks, pod manifest.VMPod) bool {
	_, overridden := pod.Annotations[annotationDefaultNetwork]
	configured := slices.ContainsFunc(o.AddressAnnotations, func(a AddressAnnotation) bool { return a.Name == annotationDefaultNetwork })
	return o.KeepDynamicAddresses && networks.HasDynamicAddress() && (!overridden || configured)
}

// HasDynamicAddress reports whether the address of the Pod's primary interface is dynamic.
func (ns Networks) HasDynamicAddress() bool {
	dynamic := false
	for _, network := range ns {
		if network.hasNetworkAttachment() {
			continue
		}
		if network.isManual() {
			return false
		}
		dynamic = dynamic || network.Type == Dynamic
	}
	return dynamic
}

// PodAddresses returns the addresses of the Pod's primary interface, IPv4 first.
func PodAddresses(pod manifest.VMPod) []string {
	var addresses []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			addresses = append(addresses, address)
		}
	}
	return sortedStrings(addresses)
}
