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

// Annotate returns the Pod's annotations with those that ask for the networks' addresses.
func (ns Networks) Annotate(options Options, own map[string]string) (map[string]string, error) {
	requested, err := options.Annotations(ns.StaticAddresses())
	if err != nil {
		return nil, err
	}
	nics, err := ns.nicAnnotations()
	if err != nil {
		return nil, err
	}
	if _, both := own[annotationNICs]; both && len(nics) > 0 {
		return nil, call.Invalid("cloud_properties.annotations.%s and a network's network_attachment exclude each other: "+
			"give every attachment as a network", annotationNICs)
	}
	annotations := map[string]string{}
	for _, each := range []map[string]string{own, requested, nics} {
		maps.Copy(annotations, each)
	}
	return annotations, nil
}

// ErrAddressMismatch means that the Pod is up without an address that BOSH chose.
var ErrAddressMismatch = errors.New("the machine does not have the address that BOSH chose")

// StaticAddresses returns the static addresses of the Pod's own interface, IPv4 first. Only the type decides: the director sends
// dynamic networks with an address that a former VM had.
func (ns Networks) StaticAddresses() []string {
	var found []netip.Addr
	for _, network := range ns {
		if network.manual() && !network.isNIC() {
			if address, err := netip.ParseAddr(network.IP); err == nil {
				found = append(found, address)
			}
		}
	}
	return sortAddresses(found)
}

// sortAddresses returns the addresses as text, IPv4 first.
func sortAddresses(addresses []netip.Addr) []string {
	slices.SortFunc(addresses, netip.Addr.Compare)
	texts := make([]string, 0, len(addresses))
	for _, address := range addresses {
		texts = append(texts, address.String())
	}
	return texts
}

// Verify compares the addresses that BOSH chose with those that the Pod has.
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
		if !network.manual() {
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
			return call.VMCreationFailed.Errorf("%w: network %s wants the address %s, but the Pod got %s: "+
				"the cluster's network plugin does not honor the annotations of network.address_annotations, "+
				"or its IP pools do not hold that address", ErrAddressMismatch, name, network.IP, got)
		}
	}
	return nil
}

// DescribeStaticAddresses names the networks whose addresses BOSH chose.
func (ns Networks) DescribeStaticAddresses() string {
	var requested []string
	for _, name := range ns.Names() {
		if network := ns[name]; network.manual() {
			requested = append(requested, network.IP+" (network "+name+")")
		}
	}
	return strings.Join(requested, ", ")
}

// KeepsDynamicAddress reports whether the address that a dynamic network gave the Pod can be asked for again. It cannot where the Pod
// has another network of its own than the cluster's: the annotations are for that one's plugin, which would not have
// the address.
func (o Options) KeepsDynamicAddress(networks Networks, pod *corev1.Pod) bool {
	_, other := pod.Annotations[annotationDefaultNetwork]
	asks := slices.ContainsFunc(o.AddressAnnotations, func(a AddressAnnotation) bool { return a.Name == annotationDefaultNetwork })
	return o.KeepDynamicAddresses && networks.HasDynamicAddress() && (!other || asks)
}

// HasDynamicAddress reports whether the Pod's own address is one that the cluster chose.
func (ns Networks) HasDynamicAddress() bool {
	some := false
	for _, network := range ns {
		if network.isNIC() {
			continue
		}
		if network.manual() {
			return false
		}
		some = some || network.Type == Dynamic
	}
	return some
}

// PodAddresses are the Pod's own addresses, IPv4 first.
func PodAddresses(pod *corev1.Pod) []string {
	var found []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			found = append(found, address)
		}
	}
	return sortAddresses(found)
}
