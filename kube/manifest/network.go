package manifest

import (
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RoleNetwork is the value of LabelRole on what create_network made.
const RoleNetwork = "network"

// Beginnings of the names of what create_network makes; they tell delete_network what to delete.
const (
	ipPoolPrefix        = "bosh-pool-"
	ipReservationPrefix = "bosh-reservation-"
)

// IPPoolName is the name of the address pool for a range, and the network's CID.
func IPPoolName(network netip.Prefix) string { return ipPoolPrefix + rangeName(network) }

// IPReservationName is the name of the reservation of a range, and the network's CID.
func IPReservationName(network netip.Prefix) string { return ipReservationPrefix + rangeName(network) }

// IsIPPool reports whether a network's CID is an address pool's name.
func IsIPPool(cid string) bool { return strings.HasPrefix(cid, ipPoolPrefix) }

// IsIPReservation reports whether a network's CID is a reservation's name.
func IsIPReservation(cid string) bool { return strings.HasPrefix(cid, ipReservationPrefix) }

// rangeName is the range with '-' for what a name cannot have. IPv6 is written in full: "::" could
// stand for any number of groups.
func rangeName(network netip.Prefix) string {
	text := netip.PrefixFrom(network.Addr(), network.Bits()).String()
	if network.Addr().Is6() {
		_, bits, _ := strings.Cut(text, "/")
		text = network.Addr().StringExpanded() + "/" + bits
	}
	return strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(text)
}

// NetworkMeta is the metadata of what create_network makes. Its spec is the API's of an extension, which
// package kube knows.
func NetworkMeta(name, director string) metav1.ObjectMeta {
	return owned(name, "", director, RoleNetwork)
}
