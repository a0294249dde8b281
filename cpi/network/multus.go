package network

import (
	"cmp"
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"bosh-kubernetes-cpi/cpi/call"
)

// Annotations of the Network Plumbing Working Group's specification, which Multus follows: networks
// beside the Pod's own are asked for by the one, and reported by the other.
const (
	// annotationDefaultNetwork gives a Pod another network of its own than the cluster's: Multus, not the specification.
	annotationDefaultNetwork = "v1.multus-cni.io/default-network"

	annotationNICs   = "k8s.v1.cni.cncf.io/networks"
	annotationStatus = "k8s.v1.cni.cncf.io/network-status"
)

// nicRequest is one element of annotationNICs.
type nicRequest struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace,omitempty"`
	IPs       []string `json:"ips,omitempty"`
}

// networkStatus is one element of annotationStatus.
type networkStatus struct {
	Name string   `json:"name"` // namespace/name
	IPs  []string `json:"ips"`
}

// isNIC reports whether the network is an interface beside the Pod's own.
func (n Network) isNIC() bool { return n.CloudProperties.NetworkAttachment != "" }

// splitAttachment splits the reference; the namespace is empty when it is the Pod's.
func (n Network) splitAttachment() (namespace, name string) {
	namespace, name, found := strings.Cut(n.CloudProperties.NetworkAttachment, "/")
	if !found {
		return "", namespace
	}
	return namespace, name
}

func (n Network) validateNIC(network string) error {
	if !n.isNIC() {
		return nil
	}
	if n.Type == VIP {
		return call.NotSupported.Errorf("networks.%s: a vip network cannot be a network_attachment", network)
	}
	namespace, name := n.splitAttachment()
	qualified := strings.Contains(n.CloudProperties.NetworkAttachment, "/")
	if len(validation.IsDNS1123Subdomain(name)) > 0 || qualified && len(validation.IsDNS1123Label(namespace)) > 0 {
		return call.Invalid("networks.%s.cloud_properties.network_attachment %q is neither a NetworkAttachmentDefinition's name "+
			"nor namespace/name", network, n.CloudProperties.NetworkAttachment)
	}
	return nil
}

// nicAnnotations returns the annotation that asks for the networks with a network_attachment, in the
// order of their names: so the interfaces of equal machines are equal.
func (ns Networks) nicAnnotations() (map[string]string, error) {
	var requests []nicRequest
	for _, name := range ns.Names() {
		network := ns[name]
		if !network.isNIC() {
			continue
		}
		var request nicRequest
		request.Namespace, request.Name = network.splitAttachment()
		if network.manual() {
			request.IPs = []string{network.withPrefixLength()}
		}
		requests = append(requests, request)
	}
	if len(requests) == 0 {
		return nil, nil
	}
	raw, err := json.Marshal(requests)
	return map[string]string{annotationNICs: string(raw)}, err
}

// AttachmentsOf returns the NetworkAttachmentDefinitions that the Pod asks for, as namespace/name.
func AttachmentsOf(pod *corev1.Pod) []string {
	var requests []nicRequest
	if json.Unmarshal([]byte(pod.Annotations[annotationNICs]), &requests) != nil {
		return nil // the operator's own, in the other form that Multus knows
	}
	attachments := make([]string, 0, len(requests))
	for _, request := range requests {
		attachments = append(attachments, cmp.Or(request.Namespace, pod.Namespace)+"/"+request.Name)
	}
	return attachments
}

// withPrefixLength is the address as address managers want it that do not know its network, with the
// prefix length of the network's netmask.
func (n Network) withPrefixLength() string {
	address, err := netip.ParseAddr(n.IP)
	mask, maskErr := netip.ParseAddr(n.Netmask)
	if err != nil || maskErr != nil {
		return cmp.Or(address.String(), n.IP)
	}
	ones, bits := net.IPMask(mask.AsSlice()).Size()
	if bits != address.BitLen() {
		return address.String()
	}
	return address.String() + "/" + strconv.Itoa(ones)
}

// verifyNIC compares the address that BOSH chose with those that Multus reports of the attachment.
func (n Network) verifyNIC(network string, pod *corev1.Pod) error {
	desired, err := netip.ParseAddr(n.IP)
	if err != nil {
		return err
	}
	reported, ok := pod.Annotations[annotationStatus]
	if !ok {
		return call.VMCreationFailed.Errorf("%w: network %s wants the attachment %s, but the Pod has no annotation %s: "+
			"the cluster has no Multus, or it attaches nothing in this namespace",
			ErrAddressMismatch, network, n.CloudProperties.NetworkAttachment, annotationStatus)
	}
	var statuses []networkStatus
	if err := json.Unmarshal([]byte(reported), &statuses); err != nil {
		return call.VMCreationFailed.Errorf("network %s: the Pod's annotation %s is not as Multus writes it: %w", network, annotationStatus, err)
	}
	namespace, name := n.splitAttachment()
	full := cmp.Or(namespace, pod.Namespace) + "/" + name
	var actual []string
	for _, status := range statuses {
		if status.Name == full || namespace == "" && status.Name == name {
			actual = append(actual, status.IPs...)
		}
	}
	if slices.Contains(actual, desired.String()) {
		return nil
	}
	got := cmp.Or(strings.Join(actual, ", "), "no address")
	return call.VMCreationFailed.Errorf("%w: network %s wants the address %s of the attachment %s, but the Pod got %s: "+
		"the attachment's plugin has to declare the capability ips, and its address manager to take addresses from it",
		ErrAddressMismatch, network, n.IP, full, got)
}
