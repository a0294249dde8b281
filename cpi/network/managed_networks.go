package network

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/extension"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Session serves the methods about networks that BOSH manages.
type Session struct{ *call.Call }

// Values of a subnet's cloud_property calico.
const (
	calicoPool        = "ip_pool"
	calicoReservation = "ip_reservation"
)

// Subnet is what create_network gets: one subnet of a network that BOSH manages.
type Subnet struct {
	Type    string `json:"type"`
	Range   string `json:"range"` // absent when the operator gave netmask_bits in its place
	Gateway string `json:"gateway"`

	CloudProperties json.RawMessage `json:"cloud_properties"`
}

// subnetProperties are read leniently: the director merges those of the subnet's AZs into them.
type subnetProperties struct {
	Calico string                  `json:"calico"`
	IPPool manifest.IPPoolSettings `json:"ip_pool"`
}

// subnetAddresses is the second part of create_network's answer.
type subnetAddresses struct {
	Range    string   `json:"range"`
	Gateway  string   `json:"gateway"`
	Reserved []string `json:"reserved"`
}

// Create keeps the subnet's range for BOSH. It returns the network's CID, its addresses, and the
// cloud_properties that the VMs on it get.
func (s *Session) Create(subnet Subnet) ([]any, error) {
	properties, network, err := subnet.parse()
	if err != nil {
		return nil, err
	}
	var cid string
	if properties.Calico == calicoPool {
		cid, err = s.createPool(network, properties.IPPool)
	} else {
		cid, err = s.createReservation(network)
	}
	if errors.Is(err, kube.ErrNotServed) {
		return nil, call.NotSupported.Errorf("the cluster has no Calico that keeps its objects in Kubernetes: %w", err)
	}
	if err != nil {
		return nil, err
	}
	answer := subnetAddresses{Range: network.String(), Gateway: subnet.Gateway, Reserved: []string{}}
	if answer.Gateway == "" {
		answer.Gateway = network.Addr().Next().String()
	}
	return []any{cid, answer, subnet.CloudProperties}, nil
}

// parse checks the request before anything is sent.
func (s Subnet) parse() (subnetProperties, netip.Prefix, error) {
	var properties subnetProperties
	var none netip.Prefix
	if len(s.CloudProperties) > 0 {
		if err := json.Unmarshal(s.CloudProperties, &properties); err != nil {
			return properties, none, call.Invalid("cloud_properties of the subnet: %w", err)
		}
	}
	if s.Type != "" && s.Type != Manual {
		return properties, none, call.NotSupported.Errorf("create_network makes manual networks, not %s ones", s.Type)
	}
	switch properties.Calico {
	case calicoPool, calicoReservation:
	case "":
		return properties, none, call.NotSupported.Errorf("networks are the cluster's: remove `managed: true` from the network, or say with " +
			"the subnet's cloud_property calico (ip_pool or ip_reservation) how Calico is to keep its range")
	default:
		return properties, none, call.Invalid("cloud_properties.calico %q is neither ip_pool nor ip_reservation", properties.Calico)
	}
	if s.Range == "" {
		return properties, none, call.NotSupported.Errorf("the subnet needs a range: Calico chooses none by its size")
	}
	network, err := netip.ParsePrefix(s.Range)
	if err != nil || network != network.Masked() {
		return properties, none, call.Invalid("range %q is not a network like 10.0.0.0/16", s.Range)
	}
	if gateway, err := netip.ParseAddr(s.Gateway); s.Gateway != "" && (err != nil || !network.Contains(gateway)) {
		return properties, none, call.Invalid("gateway %q is not an address of the range %s", s.Gateway, s.Range)
	}
	return properties, network, nil
}

// createPool makes a pool that no node matches: Calico gives addresses of it only to Pods that ask.
// Two pools must never share addresses, which Calico checks only in its own API server.
func (s *Session) createPool(network netip.Prefix, settings manifest.IPPoolSettings) (string, error) {
	pools, err := s.IPPools()
	if err != nil {
		return "", err
	}
	existing, err := pools.List(s.Ctx, kube.Selection{})
	if err != nil {
		return "", err
	}
	desired := manifest.IPPool(network, s.Director, settings)
	for _, pool := range existing.Items {
		other, err := netip.ParsePrefix(pool.Spec.CIDR)
		if err == nil && other.Overlaps(network) && pool.Name != desired.Name {
			return "", call.Invalid("range %s overlaps %s of Calico's IPPool %s: "+
				"choose another range, or reserve it there with calico: ip_reservation",
				network, pool.Spec.CIDR, pool.Name)
		}
	}
	_, _, err = pools.Ensure(s.Ctx, desired, func(existingPool *extension.IPPool) (bool, error) {
		return true, s.checkExisting(existingPool, existingPool.Spec, desired.Spec)
	})
	return desired.Name, err
}

// createReservation keeps the range, which is part of a pool, from automatic assignment.
func (s *Session) createReservation(network netip.Prefix) (string, error) {
	reservations, err := s.IPReservations()
	if err != nil {
		return "", err
	}
	desired := manifest.IPReservation(network, s.Director)
	_, _, err = reservations.Ensure(s.Ctx, desired, func(existing *extension.IPReservation) (bool, error) {
		return true, s.checkExisting(existing, existing.Spec, desired.Spec)
	})
	return desired.Name, err
}

// checkExisting tells what an earlier try of the same director left from anybody else's.
func (s *Session) checkExisting(existing metav1.Object, spec, desiredSpec any) error {
	if !manifest.BelongsTo(existing, s.Director) {
		return call.Invalid("%s is there already, and is not this director's: another network has this range", existing.GetName())
	}
	if !reflect.DeepEqual(spec, desiredSpec) {
		return call.Invalid("%s is there already, with other properties: delete that network first", existing.GetName())
	}
	return nil
}

// Delete gives the range back. A network that create_network did not make, or not for this director, is
// NetworkNotFound.
func (s *Session) Delete(cid string) error {
	switch {
	case manifest.IsIPPool(cid):
		pools, err := s.IPPools()
		if err != nil {
			return err
		}
		return deleteOwned(s, pools, cid)
	case manifest.IsIPReservation(cid):
		reservations, err := s.IPReservations()
		if err != nil {
			return err
		}
		return deleteOwned(s, reservations, cid)
	}
	return notFoundError(cid)
}

func notFoundError(cid string) *call.Error {
	return call.NetworkNotFound.Errorf("network %s not found: there is no IPPool or IPReservation of that name that create_network made", cid)
}

// deleteOwned deletes only what create_network made.
func deleteOwned[T call.Object, L runtime.Object](s *Session, resource *kube.Resource[T, L], cid string) error {
	found, err := resource.Get(s.Ctx, cid)
	switch {
	case errors.Is(err, kube.ErrNotFound):
		return notFoundError(cid)
	case err != nil:
		return err
	case !manifest.BelongsTo(found, s.Director):
		return notFoundError(cid)
	}
	return resource.Delete(s.Ctx, found)
}
