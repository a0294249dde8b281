package extension

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// CalicoGroup is the API group of Calico's custom resources. They exist with and without Calico's own API server.
var CalicoGroup = schema.GroupVersion{Group: "crd.projectcalico.org", Version: "v1"}

// IPPool is a range from which Calico assigns addresses.
type IPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IPPoolSpec `json:"spec"`
}

// NoNodes is the nodeSelector of a pool that selects no node.
const NoNodes = "!all()"

// IsReserved reports whether the pool selects no node, so that Calico assigns its addresses on request only.
func (p *IPPool) IsReserved() bool { return p.Spec.NodeSelector == NoNodes }

// IPPoolSpec is the spec of an IPPool: https://docs.tigera.io/calico/latest/reference/resources/ippool.
type IPPoolSpec struct {
	CIDR         string `json:"cidr"`
	NodeSelector string `json:"nodeSelector,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (p *IPPool) DeepCopyObject() runtime.Object {
	c := *p
	p.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// IPReservation is a reserved range: a part of a pool from which Calico assigns addresses on request only.
type IPReservation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IPReservationSpec `json:"spec"`
}

// IPReservationSpec is the spec of an IPReservation: https://docs.tigera.io/calico/latest/reference/resources/ipreservation.
type IPReservationSpec struct {
	ReservedCIDRs []string `json:"reservedCIDRs"`
}

// DeepCopyObject implements runtime.Object.
func (r *IPReservation) DeepCopyObject() runtime.Object {
	c := *r
	r.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.ReservedCIDRs = append([]string(nil), r.Spec.ReservedCIDRs...)
	return &c
}
