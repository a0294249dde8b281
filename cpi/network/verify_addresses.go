package network

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
)

// ErrAddressMismatch reports that the Pod started without an address that BOSH assigned.
var ErrAddressMismatch = errors.New("VM does not have its requested address")

// VerifyAddresses checks that the Pod has the addresses assigned by BOSH.
func (ns Networks) VerifyAddresses(pod manifest.VMPod) error {
	var actual []string
	for _, ip := range pod.Status.PodIPs {
		actual = append(actual, ip.IP)
	}
	got := cmp.Or(strings.Join(actual, ", "), "no address")
	for _, name := range ns.Names() {
		network := ns[name]
		if !network.isManual() {
			continue
		}
		if network.hasNetworkAttachment() {
			if err := network.verifyNetworkAttachment(name, pod); err != nil {
				return err
			}
			continue
		}
		desired, err := netip.ParseAddr(network.IP)
		if err != nil {
			return err
		}
		if !slices.Contains(actual, desired.String()) {
			return call.CodeAddressNotAssigned.Errorf("%w: network %s requests %s, but the Pod has %s; check that the "+
				"network plugin honors kubernetes.network.address_annotations and that its IP pools contain the address",
				ErrAddressMismatch, name, network.IP, got)
		}
	}
	return nil
}
