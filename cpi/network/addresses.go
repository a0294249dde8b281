package network

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
)

// Annotate returns the annotations of the VM Pod: those in its cloud_properties, and those that request the addresses and attachments of
// the networks.
func (ns Networks) Annotate(options Options, properties map[string]string) (map[string]string, error) {
	requested, err := options.Annotations(ns.StaticAddresses())
	if err != nil {
		return nil, err
	}
	nics, err := ns.nicAnnotations()
	if err != nil {
		return nil, err
	}
	if _, set := properties[annotationNICs]; set && len(nics) > 0 {
		return nil, call.Invalid("cloud_properties.annotations.%s and network_attachment of a network exclude each other; "+
			"define each attachment as a network", annotationNICs)
	}
	annotations := map[string]string{}
	for _, source := range []map[string]string{properties, requested, nics} {
		maps.Copy(annotations, source)
	}
	return annotations, nil
}

// ErrAddressMismatch means that the Pod has started without an address that BOSH assigned.
var ErrAddressMismatch = errors.New("the VM does not have the address that BOSH assigned")

// StaticAddresses returns the static addresses of the Pod's primary interface, IPv4 first. It ignores the addresses of dynamic networks,
// which the director sends after a former VM had them.
func (ns Networks) StaticAddresses() []string {
	var addresses []netip.Addr
	for _, network := range ns {
		if network.isManual() && !network.isNIC() {
			if address, err := netip.ParseAddr(network.IP); err == nil {
				addresses = append(addresses, address)
			}
		}
	}
	return sortAddresses(addresses)
}

// sortAddresses returns the addresses as strings, IPv4 first.
func sortAddresses(addresses []netip.Addr) []string {
	slices.SortFunc(addresses, netip.Addr.Compare)
	texts := make([]string, 0, len(addresses))
	for _, address := range addresses {
		texts = append(texts, address.String())
	}
	return texts
}

// Verify checks that the Pod has the addresses that BOSH assigned.
func (ns Networks) Verify(pod *corev1.Pod) error {
	var actual []string
	for _, ip := range pod.Status.PodIPs {
		actual = append(actual, ip.IP)
	}
	got := strings.Join(actual, ", ")
	if got == "" {
		got = "no address"
	}
	for _, name := range ns.Names() {
		network := ns[name]
		if !network.isManual() {
			continue
		}
		if network.isNIC() {
			if err := network.verifyNIC(name, pod); err != nil {
				return err
			}
			continue
		}
		desired, err := netip.ParseAddr(network.IP)
		if err != nil {
			return err
		}
		if !slices.Contains(actual, desired.String()) {
			return call.AddressNotAssigned.Errorf("%w: network %s requested address %s, but the Pod has %s; "+
				"check that the network plugin honors network.address_annotations and that its IP pools contain the address",
				ErrAddressMismatch, name, network.IP, got)
		}
	}
	return nil
}

// DescribeStaticAddresses returns the addresses that BOSH assigned, with the names of their networks.
func (ns Networks) DescribeStaticAddresses() string {
	var requested []string
	for _, name := range ns.Names() {
		if network := ns[name]; network.isManual() {
			requested = append(requested, network.IP+" (network "+name+")")
		}
	}
	return strings.Join(requested, ", ")
}

// KeepsDynamicAddress reports whether later requests for the Pod's address, which a dynamic network has assigned, are enabled and can
// succeed. They cannot if the Pod has another default network than the cluster: the configured annotations are for the plugin of the
// cluster's network, which does not have the address.
func (o Options) KeepsDynamicAddress(networks Networks, pod *corev1.Pod) bool {
	_, otherNetwork := pod.Annotations[annotationDefaultNetwork]
	configured := slices.ContainsFunc(o.AddressAnnotations, func(a AddressAnnotation) bool { return a.Name == annotationDefaultNetwork })
	return o.KeepDynamicAddresses && networks.HasDynamicAddress() && (!otherNetwork || configured)
}

// HasDynamicAddress reports whether the address of the Pod's primary interface is dynamic.
func (ns Networks) HasDynamicAddress() bool {
	dynamic := false
	for _, network := range ns {
		if network.isNIC() {
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
func PodAddresses(pod *corev1.Pod) []string {
	var addresses []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			addresses = append(addresses, address)
		}
	}
	return sortAddresses(addresses)
}
