package network

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"bosh-kubernetes-cpi/kube"
)

// calicoGroup is the API group of Calico's custom resources. They exist with and without Calico's own API server.
var calicoGroup = schema.GroupVersion{Group: "crd.projectcalico.org", Version: "v1"}

// ipPool is a range from which Calico assigns addresses.
type ipPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ipPoolSpec `json:"spec"`
}

// NoNodes is the nodeSelector of a pool that selects no node.
const NoNodes = "!all()"

// isReserved reports whether the pool selects no node, so that Calico assigns its addresses on request only.
func (p *ipPool) isReserved() bool { return p.Spec.NodeSelector == NoNodes }

// ipPoolSpec is the spec of an IPPool: https://docs.tigera.io/calico/latest/reference/resources/ippool.
type ipPoolSpec struct {
	CIDR         string `json:"cidr"`
	NodeSelector string `json:"nodeSelector,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (p *ipPool) DeepCopyObject() runtime.Object {
	c := *p
	p.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// ipReservation is a reserved range: a part of a pool from which Calico assigns addresses on request only.
type ipReservation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ipReservationSpec `json:"spec"`
}

// ipReservationSpec is the spec of an IPReservation: https://docs.tigera.io/calico/latest/reference/resources/ipreservation.
type ipReservationSpec struct {
	ReservedCIDRs []string `json:"reservedCIDRs"`
}

// DeepCopyObject implements runtime.Object.
func (r *ipReservation) DeepCopyObject() runtime.Object {
	c := *r
	r.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.ReservedCIDRs = append([]string(nil), r.Spec.ReservedCIDRs...)
	return &c
}

// IPPools returns the ranges of Calico's IPPools: those that are assigned on request only, and the others.
func IPPools(ctx context.Context, client *kube.Client) (reserved, others []AddressRange, err error) {
	pools, err := kube.NewExtension[ipPool](client, "", calicoGroup, "IPPool", "ippools").List(ctx, kube.Selection{})
	for _, pool := range pools.Items {
		if pool.isReserved() {
			reserved = appendRange(reserved, pool.Spec.CIDR, "IPPool "+pool.Name)
		} else {
			others = appendRange(others, pool.Spec.CIDR, "IPPool "+pool.Name)
		}
	}
	return reserved, others, err
}

// IPReservations returns the ranges of Calico's IPReservations, from which addresses are assigned on request only. A cluster without this
// kind has none.
func IPReservations(ctx context.Context, client *kube.Client) (reserved []AddressRange, err error) {
	resource := kube.NewExtension[ipReservation](client, "", calicoGroup, "IPReservation", "ipreservations")
	reservations, err := resource.List(ctx, kube.Selection{})
	if errors.Is(err, kube.ErrNotServed) {
		return nil, nil
	}
	for _, reservation := range reservations.Items {
		for _, cidr := range reservation.Spec.ReservedCIDRs {
			reserved = appendRange(reserved, cidr, "IPReservation "+reservation.Name)
		}
	}
	return reserved, err
}
