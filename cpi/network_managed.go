package cpi

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Values of a subnet's cloud_property calico.
const (
	calicoPool        = "ip_pool"
	calicoReservation = "ip_reservation"
)

// subnet is what create_network gets: one subnet of a network that BOSH manages.
type subnet struct {
	Type    string `json:"type"`
	Range   string `json:"range"` // absent when the operator gave netmask_bits in its place
	Gateway string `json:"gateway"`

	CloudProperties json.RawMessage `json:"cloud_properties"`
}

// subnetProperties are read leniently: the director merges those of the subnet's AZs into them.
type subnetProperties struct {
	Calico string     `json:"calico"`
	IPPool poolWishes `json:"ip_pool"`
}

// poolWishes are what the pool has in common with those of the cluster's other Pods.
type poolWishes struct {
	IPIPMode    string `json:"ipip_mode"`
	VXLANMode   string `json:"vxlan_mode"`
	NATOutgoing bool   `json:"nat_outgoing"`
	BlockSize   int    `json:"block_size"`
}

// subnetAddresses is the second part of create_network's answer.
type subnetAddresses struct {
	Range    string   `json:"range"`
	Gateway  string   `json:"gateway"`
	Reserved []string `json:"reserved"`
}

// createNetwork keeps the subnet's range for BOSH. It answers the network's CID, its addresses, and the
// cloud_properties that the VMs on it get.
func (c *call) createNetwork(wanted subnet) ([]any, error) {
	properties, network, err := wanted.parse()
	if err != nil {
		return nil, err
	}
	cluster, err := c.cluster()
	if err != nil {
		return nil, err
	}
	var cid string
	if properties.Calico == calicoPool {
		cid, err = c.createPool(cluster, network, properties.IPPool)
	} else {
		cid, err = c.createReservation(cluster, network)
	}
	if errors.Is(err, kube.ErrNotServed) {
		return nil, typed(typeNotSupported, "the cluster has no Calico that keeps its objects in Kubernetes: %w", err)
	}
	if err != nil {
		return nil, err
	}
	answer := subnetAddresses{Range: network.String(), Gateway: wanted.Gateway, Reserved: []string{}}
	if answer.Gateway == "" {
		answer.Gateway = network.Addr().Next().String()
	}
	return []any{cid, answer, wanted.CloudProperties}, nil
}

// parse checks the request before anything is sent.
func (s subnet) parse() (subnetProperties, netip.Prefix, error) {
	var properties subnetProperties
	var none netip.Prefix
	if len(s.CloudProperties) > 0 {
		if err := json.Unmarshal(s.CloudProperties, &properties); err != nil {
			return properties, none, invalid("cloud_properties of the subnet: %w", err)
		}
	}
	if s.Type != "" && s.Type != networkManual {
		return properties, none, typed(typeNotSupported, "create_network makes manual networks, not %s ones", s.Type)
	}
	switch properties.Calico {
	case calicoPool, calicoReservation:
	case "":
		return properties, none, typed(typeNotSupported, "networks are the cluster's: remove `managed: true` from the network, or say with "+
			"the subnet's cloud_property calico (ip_pool or ip_reservation) how Calico is to keep its range")
	default:
		return properties, none, invalid("cloud_properties.calico %q is neither ip_pool nor ip_reservation", properties.Calico)
	}
	if s.Range == "" {
		return properties, none, typed(typeNotSupported, "the subnet needs a range: Calico chooses none by its size")
	}
	network, err := netip.ParsePrefix(s.Range)
	if err != nil || network != network.Masked() {
		return properties, none, invalid("range %q is not a network like 10.0.0.0/16", s.Range)
	}
	if gateway, err := netip.ParseAddr(s.Gateway); s.Gateway != "" && (err != nil || !network.Contains(gateway)) {
		return properties, none, invalid("gateway %q is not an address of the range %s", s.Gateway, s.Range)
	}
	return properties, network, nil
}

// createPool makes a pool that no node matches: Calico gives addresses of it only to Pods that ask.
// Two pools must never share addresses, which Calico checks only in its own API server.
func (c *call) createPool(cluster *kube.Client, network netip.Prefix, wishes poolWishes) (string, error) {
	pools, err := cluster.IPPools()
	if err != nil {
		return "", err
	}
	wanted := &kube.IPPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: "crd.projectcalico.org/v1", Kind: "IPPool"},
		ObjectMeta: manifest.NetworkMeta(manifest.IPPoolName(network), c.director),
		Spec: kube.IPPoolSpec{
			CIDR: network.String(), NodeSelector: "!all()", AllowedUses: []string{"Workload"},
			IPIPMode: wishes.IPIPMode, VXLANMode: wishes.VXLANMode, NATOutgoing: wishes.NATOutgoing, BlockSize: wishes.BlockSize,
		},
	}
	present, err := pools.List(c.ctx, kube.Selection{})
	if err != nil {
		return "", err
	}
	for _, pool := range present.Items {
		if pool.Name == wanted.Name {
			return wanted.Name, c.sameNetwork(pool, pool.Spec, wanted.Spec)
		}
		if other, err := netip.ParsePrefix(pool.Spec.CIDR); err == nil && other.Overlaps(network) {
			return "", invalid("range %s overlaps %s of Calico's IPPool %s: choose another range, or reserve it there with calico: ip_reservation",
				network, pool.Spec.CIDR, pool.Name)
		}
	}
	_, err = pools.Create(c.ctx, wanted)
	if errors.Is(err, kube.ErrExists) { // an answer that was lost
		made, err := pools.Get(c.ctx, wanted.Name)
		if err != nil {
			return "", err
		}
		return wanted.Name, c.sameNetwork(made, made.Spec, wanted.Spec)
	}
	return wanted.Name, err
}

// createReservation keeps the range, which is part of a pool, from automatic assignment.
func (c *call) createReservation(cluster *kube.Client, network netip.Prefix) (string, error) {
	reservations, err := cluster.IPReservations()
	if err != nil {
		return "", err
	}
	wanted := &kube.IPReservation{
		TypeMeta:   metav1.TypeMeta{APIVersion: "crd.projectcalico.org/v1", Kind: "IPReservation"},
		ObjectMeta: manifest.NetworkMeta(manifest.IPReservationName(network), c.director),
		Spec:       kube.IPReservationSpec{ReservedCIDRs: []string{network.String()}},
	}
	_, err = reservations.Create(c.ctx, wanted)
	if errors.Is(err, kube.ErrExists) {
		made, err := reservations.Get(c.ctx, wanted.Name)
		if err != nil {
			return "", err
		}
		return wanted.Name, c.sameNetwork(made, made.Spec, wanted.Spec)
	}
	return wanted.Name, err
}

// sameNetwork tells what an earlier try of the same director left from anybody else's.
func (c *call) sameNetwork(there metav1.Object, spec, wantedSpec any) error {
	if !manifest.Belongs(there, c.director) {
		return invalid("%s is there already, and is not this director's: another network has this range", there.GetName())
	}
	if !reflect.DeepEqual(spec, wantedSpec) {
		return invalid("%s is there already, with other properties: delete that network first", there.GetName())
	}
	return nil
}

// deleteNetwork gives the range back.
func (c *call) deleteNetwork(cid string) (any, error) {
	cluster, err := c.cluster()
	if err != nil {
		return nil, err
	}
	switch {
	case manifest.IsIPPool(cid):
		pools, err := cluster.IPPools()
		if err != nil {
			return nil, err
		}
		return nil, removeNetwork(c, pools, cid)
	case manifest.IsIPReservation(cid):
		reservations, err := cluster.IPReservations()
		if err != nil {
			return nil, err
		}
		return nil, removeNetwork(c, reservations, cid)
	}
	return nil, networkNotFound(cid)
}

func networkNotFound(cid string) *Error {
	return typed(typeNetNotFound, "network %s not found: there is no IPPool or IPReservation of that name that create_network made", cid)
}

// removeNetwork deletes only what create_network made.
func removeNetwork[T kubernetesObject, L runtime.Object](c *call, among *kube.Resource[T, L], cid string) error {
	found, err := among.Get(c.ctx, cid)
	switch {
	case errors.Is(err, kube.ErrNotFound):
		return networkNotFound(cid)
	case err != nil:
		return err
	case !manifest.Belongs(found, c.director):
		return networkNotFound(cid)
	}
	return among.Delete(c.ctx, found)
}
