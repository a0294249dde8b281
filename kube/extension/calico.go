package extension

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// CalicoGroup is how Calico keeps its objects in Kubernetes; it is there with and without Calico's own
// API server.
var CalicoGroup = schema.GroupVersion{Group: "crd.projectcalico.org", Version: "v1"}

// IPPool is a range that Calico gives addresses of. These are the fields that the CPI uses.
type IPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IPPoolSpec `json:"spec"`
}

// IPPoolSpec is https://docs.tigera.io/calico/latest/reference/resources/ippool.
type IPPoolSpec struct {
	CIDR         string   `json:"cidr"`
	BlockSize    int      `json:"blockSize,omitempty"`
	IPIPMode     string   `json:"ipipMode,omitempty"`
	VXLANMode    string   `json:"vxlanMode,omitempty"`
	NATOutgoing  bool     `json:"natOutgoing,omitempty"`
	NodeSelector string   `json:"nodeSelector,omitempty"`
	AllowedUses  []string `json:"allowedUses,omitempty"`
}

// DeepCopyObject makes it a runtime.Object.
func (p *IPPool) DeepCopyObject() runtime.Object {
	c := *p
	p.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.AllowedUses = append([]string(nil), p.Spec.AllowedUses...)
	return &c
}

// IPReservation is a range, part of a pool, that Calico gives addresses of only to Pods that ask.
type IPReservation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IPReservationSpec `json:"spec"`
}

// IPReservationSpec is https://docs.tigera.io/calico/latest/reference/resources/ipreservation.
type IPReservationSpec struct {
	ReservedCIDRs []string `json:"reservedCIDRs"`
}

// DeepCopyObject makes it a runtime.Object.
func (r *IPReservation) DeepCopyObject() runtime.Object {
	c := *r
	r.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.ReservedCIDRs = append([]string(nil), r.Spec.ReservedCIDRs...)
	return &c
}
