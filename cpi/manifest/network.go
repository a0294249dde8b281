package manifest

import (
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube/extension"
)

// Prefixes of the names of the objects that create_network creates: delete_network derives the kind from the network's CID.
const (
	ipPoolPrefix        = "bosh-pool-"
	ipReservationPrefix = "bosh-reservation-"
)

// IPPoolName returns the name of the IPPool of a range, which is the network's CID.
func IPPoolName(network netip.Prefix) string { return ipPoolPrefix + rangeName(network) }

// IPReservationName returns the name of the IPReservation of a range, which is the network's CID.
func IPReservationName(network netip.Prefix) string { return ipReservationPrefix + rangeName(network) }

// IsIPPool reports whether a network's CID is the name of an IPPool.
func IsIPPool(cid string) bool { return strings.HasPrefix(cid, ipPoolPrefix) }

// IsIPReservation reports whether a network's CID is the name of an IPReservation.
func IsIPReservation(cid string) bool { return strings.HasPrefix(cid, ipReservationPrefix) }

// rangeName returns the range with '-' for characters that a name cannot contain. It expands IPv6 addresses, because "::" would
// become ambiguous.
func rangeName(network netip.Prefix) string {
	cidr := netip.PrefixFrom(network.Addr(), network.Bits()).String()
	if network.Addr().Is6() {
		_, bits, _ := strings.Cut(cidr, "/")
		cidr = network.Addr().StringExpanded() + "/" + bits
	}
	return strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(cidr)
}

// IPPoolSettings are cloud_properties.ip_pool of a network. They must match the pools of the cluster's other Pods.
type IPPoolSettings struct {
	IPIPMode    string `json:"ipip_mode"`
	VXLANMode   string `json:"vxlan_mode"`
	NATOutgoing bool   `json:"nat_outgoing"`
	BlockSize   int    `json:"block_size"`
}

// IPPool returns a pool of these addresses. Its node selector matches no node, so that Calico assigns the addresses on request
// only.
func IPPool(network netip.Prefix, director string, settings IPPoolSettings) *extension.IPPool {
	return &extension.IPPool{
		TypeMeta:   calicoTypeMeta("IPPool"),
		ObjectMeta: newObjectMeta(IPPoolName(network), "", director, RoleNetwork),
		Spec: extension.IPPoolSpec{
			CIDR: network.String(), NodeSelector: extension.NoNodes, AllowedUses: []string{"Workload"},
			IPIPMode: settings.IPIPMode, VXLANMode: settings.VXLANMode, NATOutgoing: settings.NATOutgoing, BlockSize: settings.BlockSize,
		},
	}
}

// IPReservation returns a reservation of these addresses of an existing pool, so that Calico assigns them on request only.
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
