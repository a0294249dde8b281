package network

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/extension"
)

// Session serves the methods about managed networks.
type Session struct{ *call.Call }

// Values of the cloud property calico of a subnet.
const (
	calicoPool        = "ip_pool"
	calicoReservation = "ip_reservation"
)

// Subnet is the argument of create_network: a subnet of a managed network.
type Subnet struct {
	Type    string `json:"type"`
	Range   string `json:"range"` // empty if the operator sets netmask_bits instead
	Gateway string `json:"gateway"`

	CloudProperties json.RawMessage `json:"cloud_properties"`
}

// subnetProperties are the cloud_properties of a subnet. Unknown keys are ignored, because the director merges the cloud_properties of the
// subnet's AZs into them.
type subnetProperties struct {
	Calico string                  `json:"calico"`
	IPPool manifest.IPPoolSettings `json:"ip_pool"`
}

// subnetAddresses is the second element of create_network's result.
type subnetAddresses struct {
	Range    string   `json:"range"`
	Gateway  string   `json:"gateway"`
	Reserved []string `json:"reserved"`
}

// Create creates an IPPool or IPReservation that makes the subnet's range a reserved range. It returns the network's CID, its addresses,
// and the cloud_properties for VMs in the network.
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
		return nil, call.CodeManagedNetworkUnsupported.Errorf("cannot create a network: "+
			"the Calico API (crd.projectcalico.org/v1) is not installed: %w; see docs/guides/networks.md", err)
	}
	if err != nil {
		return nil, err
	}
	gateway := cmp.Or(subnet.Gateway, network.Addr().Next().String())
	addresses := subnetAddresses{Range: network.String(), Gateway: gateway, Reserved: []string{}}
	return []any{cid, addresses, subnet.CloudProperties}, nil
}

// parse validates the subnet, and returns its cloud_properties and range. It sends no requests to the cluster.
func (s Subnet) parse() (subnetProperties, netip.Prefix, error) {
	var properties subnetProperties
	var none netip.Prefix
	if len(s.CloudProperties) > 0 {
		if err := json.Unmarshal(s.CloudProperties, &properties); err != nil {
			return properties, none, call.InvalidPropertyf("cloud_properties of the subnet: %w", err)
		}
	}
	if s.Type != "" && s.Type != Manual {
		return properties, none, call.CodeManagedNetworkUnsupported.Errorf("cannot create a network of type %s; use type: manual", s.Type)
	}
	switch properties.Calico {
	case calicoPool, calicoReservation:
	case "":
		return properties, none, call.CodeManagedNetworkUnsupported.Errorf("cannot create a network: the subnet's cloud_properties.calico is " +
			"missing; set it to ip_pool or ip_reservation, or remove `managed: true` from the network")
	default:
		return properties, none, call.InvalidPropertyf("cloud_properties.calico %q is not valid; use ip_pool or ip_reservation",
			properties.Calico)
	}
	if s.Range == "" {
		return properties, none, call.CodeManagedNetworkUnsupported.Errorf("cannot create a network: the subnet has no range, and Calico does " +
			"not support netmask_bits; set range")
	}
	network, err := netip.ParsePrefix(s.Range)
	if err != nil || network != network.Masked() {
		return properties, none, call.InvalidPropertyf("range %q is not a CIDR range like 10.0.0.0/16", s.Range)
	}
	if gateway, err := netip.ParseAddr(s.Gateway); s.Gateway != "" && (err != nil || !network.Contains(gateway)) {
		return properties, none, call.InvalidPropertyf("gateway %q is not an address in range %s", s.Gateway, s.Range)
	}
	return properties, network, nil
}

// createPool creates an IPPool. Its node selector matches no node, so that Calico assigns its addresses on request only. createPool
// rejects a range that overlaps another pool, because only Calico's own API server would do that.
func (s *Session) createPool(network netip.Prefix, settings manifest.IPPoolSettings) (string, error) {
	pools := s.IPPools()
	existing, err := pools.List(s.Ctx, kube.Selection{})
	if err != nil {
		return "", err
	}
	desired := manifest.IPPool(network, s.Director, settings)
	for _, pool := range existing.Items {
		other, err := netip.ParsePrefix(pool.Spec.CIDR)
		if err == nil && other.Overlaps(network) && pool.Name != desired.Name {
			return "", call.InvalidPropertyf("range %s overlaps range %s of Calico's IPPool %s; "+
				"choose another range, or reserve it in that pool with calico: ip_reservation",
				network, pool.Spec.CIDR, pool.Name)
		}
	}
	_, _, err = pools.Ensure(s.Ctx, desired, func(existingPool *extension.IPPool) (bool, error) {
		return true, s.checkExisting(existingPool, existingPool.Spec, desired.Spec)
	})
	return desired.Name, err
}

// createReservation creates an IPReservation for a range of an existing pool, so that Calico assigns its addresses on request only.
func (s *Session) createReservation(network netip.Prefix) (string, error) {
	desired := manifest.IPReservation(network, s.Director)
	_, _, err := s.IPReservations().Ensure(s.Ctx, desired, func(existing *extension.IPReservation) (bool, error) {
		return true, s.checkExisting(existing, existing.Spec, desired.Spec)
	})
	return desired.Name, err
}

// checkExisting accepts an object from an earlier attempt of the same call. It rejects one that belongs to another director or has
// other properties.
func (s *Session) checkExisting(existing metav1.Object, spec, desiredSpec any) error {
	if !manifest.BelongsTo(existing, s.Director) {
		return call.InvalidPropertyf("%s already exists and does not belong to this director; choose another range", existing.GetName())
	}
	if !reflect.DeepEqual(spec, desiredSpec) {
		return call.InvalidPropertyf("%s already exists with other properties; delete that network first", existing.GetName())
	}
	return nil
}

// Delete deletes the IPPool or IPReservation of the network. If it was not created by create_network for this director, Delete
// returns NetworkNotFound.
func (s *Session) Delete(cid string) error {
	switch {
	case manifest.IsIPPool(cid):
		return deleteOwned(s, s.IPPools(), cid)
	case manifest.IsIPReservation(cid):
		return deleteOwned(s, s.IPReservations(), cid)
	}
	return notFoundError(cid)
}

func notFoundError(cid string) *call.Error {
	return call.CodeNetworkNotFound.Errorf("network %s not found: "+
		"there is no IPPool or IPReservation with this name that was created by create_network", cid)
}

// deleteOwned deletes the object if it belongs to this director.
func deleteOwned[T kube.Object, L runtime.Object](s *Session, resource *kube.Resource[T, L], cid string) error {
	found, err := resource.Get(s.Ctx, cid)
	switch {
	case errors.Is(err, kube.ErrNotFound), err == nil && !manifest.BelongsTo(found, s.Director):
		return notFoundError(cid)
	case err != nil:
		return err
	}
	return resource.Delete(s.Ctx, found)
}
