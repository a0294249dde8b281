package manifest

import (
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube/extension"
)

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

// IPPoolSettings are what a pool has in common with those of the cluster's other Pods.
type IPPoolSettings struct {
	IPIPMode    string `json:"ipip_mode"`
	VXLANMode   string `json:"vxlan_mode"`
	NATOutgoing bool   `json:"nat_outgoing"`
	BlockSize   int    `json:"block_size"`
}

// IPPool is a pool of these addresses that no node matches: Calico gives addresses of it only to Pods that
// ask.
func IPPool(network netip.Prefix, director string, settings IPPoolSettings) *extension.IPPool {
	return &extension.IPPool{
		TypeMeta:   calicoTypeMeta("IPPool"),
		ObjectMeta: newObjectMeta(IPPoolName(network), "", director, RoleNetwork),
		Spec: extension.IPPoolSpec{
			CIDR: network.String(), NodeSelector: "!all()", AllowedUses: []string{"Workload"},
			IPIPMode: settings.IPIPMode, VXLANMode: settings.VXLANMode, NATOutgoing: settings.NATOutgoing, BlockSize: settings.BlockSize,
		},
	}
}

// IPReservation keeps the addresses, which are part of a pool, from automatic assignment.
func IPReservation(network netip.Prefix, director string) *extension.IPReservation {
	return &extension.IPReservation{
		TypeMeta:   calicoTypeMeta("IPReservation"),
		ObjectMeta: newObjectMeta(IPReservationName(network), "", director, RoleNetwork),
		Spec:       extension.IPReservationSpec{ReservedCIDRs: []string{network.String()}},
	}
}

func calicoTypeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: extension.CalicoGroup.String(), Kind: kind}
}
