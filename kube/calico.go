package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// calicoGroup is how Calico keeps its objects in Kubernetes; it is there with and without Calico's own
// API server.
var calicoGroup = schema.GroupVersion{Group: "crd.projectcalico.org", Version: "v1"}

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

// IPPoolList is a list of them.
type IPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []IPPool `json:"items"`
}

// DeepCopyObject makes it a runtime.Object.
func (p *IPPool) DeepCopyObject() runtime.Object {
	c := *p
	p.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.AllowedUses = append([]string(nil), p.Spec.AllowedUses...)
	return &c
}

// DeepCopyObject makes it a runtime.Object.
func (l *IPPoolList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]IPPool, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*IPPool)
	}
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

// IPReservationList is a list of them.
type IPReservationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []IPReservation `json:"items"`
}

// DeepCopyObject makes it a runtime.Object.
func (r *IPReservation) DeepCopyObject() runtime.Object {
	c := *r
	r.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.ReservedCIDRs = append([]string(nil), r.Spec.ReservedCIDRs...)
	return &c
}

// DeepCopyObject makes it a runtime.Object.
func (l *IPReservationList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]IPReservation, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*IPReservation)
	}
	return &c
}

func (c *Client) calico(kind, list runtime.Object) (connection, error) {
	via, err := c.connect("/apis", calicoGroup, func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypes(calicoGroup, kind, list)
		return nil
	})
	via.namespace = "" // they belong to the cluster
	return via, err
}

// IPPools are Calico's.
func (c *Client) IPPools() (*Resource[*IPPool, *IPPoolList], error) {
	via, err := c.calico(&IPPool{}, &IPPoolList{})
	if err != nil {
		return nil, err
	}
	return resource(via, "IPPool", "ippools", newOf[IPPool], newOf[IPPoolList]), nil
}

// IPReservations are Calico's.
func (c *Client) IPReservations() (*Resource[*IPReservation, *IPReservationList], error) {
	via, err := c.calico(&IPReservation{}, &IPReservationList{})
	if err != nil {
		return nil, err
	}
	return resource(via, "IPReservation", "ipreservations", newOf[IPReservation], newOf[IPReservationList]), nil
}
