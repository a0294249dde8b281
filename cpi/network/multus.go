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
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube/document"
)

const (
	// annotationDefaultNetwork overrides the cluster's network for the primary interface of a Pod. It is specific to Multus.
	annotationDefaultNetwork = "v1.multus-cni.io/default-network"

	// annotationNetworks requests network attachments, and annotationStatus reports the networks of a Pod. Multus implements both,
	// as specified by the Network Plumbing Working Group.
	annotationNetworks = "k8s.v1.cni.cncf.io/networks"
	annotationStatus   = "k8s.v1.cni.cncf.io/network-status"
)

// networkAttachmentRequest is an element of annotationNetworks.
type networkAttachmentRequest struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace,omitempty"`
	IPs       []string `json:"ips,omitempty"`
}

// networkStatus is an element of annotationStatus.
type networkStatus struct {
	Name string   `json:"name"` // namespace/name
	IPs  []string `json:"ips"`
}

// hasNetworkAttachment reports whether the network is a network attachment, and not the primary interface of the Pod.
func (n Network) hasNetworkAttachment() bool { return n.CloudProperties.NetworkAttachment != "" }

// splitNetworkAttachment returns the namespace and name of the NetworkAttachmentDefinition. An empty namespace means the Pod's namespace.
func (n Network) splitNetworkAttachment() (namespace, name string) {
	namespace, name, qualified := strings.Cut(n.CloudProperties.NetworkAttachment, "/")
	if !qualified {
		return "", namespace
	}
	return namespace, name
}

func (n Network) validateNetworkAttachment(network string) error {
	if !n.hasNetworkAttachment() {
		return nil
	}
	if n.Type == VIP {
		return call.CodeNetworkUnsupported.Errorf("networks.%s: a vip network cannot have a network_attachment; remove that property", network)
	}
	namespace, name := n.splitNetworkAttachment()
	qualified := strings.Contains(n.CloudProperties.NetworkAttachment, "/")
	if len(validation.IsDNS1123Subdomain(name)) > 0 || qualified && len(validation.IsDNS1123Label(namespace)) > 0 {
		return call.InvalidPropertyf("networks.%s.cloud_properties.network_attachment %q is not valid; use the name of "+
			"a NetworkAttachmentDefinition, or namespace/name", network, n.CloudProperties.NetworkAttachment)
	}
	return nil
}

// networkAttachmentAnnotations returns the annotation that requests the network attachments, sorted by network name, so that VMs with the
// same networks have the same interfaces.
func (ns Networks) networkAttachmentAnnotations() (map[string]string, error) {
	var requests []networkAttachmentRequest
	for _, name := range ns.Names() {
		network := ns[name]
		if !network.hasNetworkAttachment() {
			continue
		}
		var request networkAttachmentRequest
		request.Namespace, request.Name = network.splitNetworkAttachment()
		if network.isManual() {
			request.IPs = []string{network.withPrefixLength()}
		}
		requests = append(requests, request)
	}
	if len(requests) == 0 {
		return nil, nil
	}
	raw, err := json.Marshal(requests)
	return map[string]string{annotationNetworks: string(raw)}, err
}

// AttachmentsOf returns the NetworkAttachmentDefinitions that the Pod requests in JSON format, as namespace/name.
func AttachmentsOf(pod manifest.VMPod) []string {
	var requests []networkAttachmentRequest
	if json.Unmarshal([]byte(pod.Annotations[annotationNetworks]), &requests) != nil {
		return nil // set by the operator in the comma-separated format of Multus
	}
	attachments := make([]string, 0, len(requests))
	for _, request := range requests {
		attachments = append(attachments, cmp.Or(request.Namespace, pod.Namespace)+"/"+request.Name)
	}
	return attachments
}

// withPrefixLength returns the address with the prefix length of the netmask. IPAM plugins that do not know the network require it.
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

// verifyNetworkAttachment checks that Multus reports the requested address for the network attachment.
func (n Network) verifyNetworkAttachment(network string, pod manifest.VMPod) error {
	desired, err := netip.ParseAddr(n.IP)
	if err != nil {
		return err
	}
	report, ok := pod.Annotations[annotationStatus]
	if !ok {
		return call.CodeAddressNotAssigned.Errorf("%w: network %s uses network_attachment %s, but Pod %s has no annotation %s; "+
			"check that Multus is installed and handles this namespace",
			ErrAddressMismatch, network, n.CloudProperties.NetworkAttachment, pod.Name, annotationStatus)
	}
	var statuses []networkStatus
	if err := document.Unmarshal("annotation "+annotationStatus+" of the Pod, the status of Multus", []byte(report), &statuses); err != nil {
		return call.CodeInvalidMultusStatus.Errorf("network %s: %w", network, err)
	}
	namespace, name := n.splitNetworkAttachment()
	qualifiedName := cmp.Or(namespace, pod.Namespace) + "/" + name
	var actual []string
	for _, status := range statuses {
		if status.Name == qualifiedName || namespace == "" && status.Name == name {
			actual = append(actual, status.IPs...)
		}
	}
	if slices.Contains(actual, desired.String()) {
		return nil
	}
	got := cmp.Or(strings.Join(actual, ", "), "no address")
	return call.CodeAddressNotAssigned.Errorf("%w: network %s: NetworkAttachmentDefinition %s must assign %s, but the Pod has %s; "+
		"its CNI plugin must declare the capability \"ips\", and its IPAM plugin must support it",
		ErrAddressMismatch, network, qualifiedName, n.IP, got)
}

// MultusNetworks detects Multus networks that a Pod requests and that do not exist. The zero value is ready to use.
type MultusNetworks struct {
	initialized    bool
	initialReports int // reports before the first call, which do not count: the network may exist by now
}

// Missing returns one of the networks (NAMESPACE/NAME) that does not exist according to the events since the first call, and the
// reported cause. Otherwise it returns empty strings. Call Missing for every change of the Pod's events.
//
// For a NetworkAttachmentDefinition that does not exist, Multus creates an event NoNetworkFound (pkg/k8sclient/k8sclient.go), and
// the kubelet repeats its message. Multus may also create such an event for the cluster's default network, although that exists.
func (n *MultusNetworks) Missing(events []*corev1.Event, networks []string) (network, message string) {
	var reports int
	for _, event := range events {
		for _, candidate := range networks {
			namespace, name, _ := strings.Cut(candidate, "/")
			prefix := "cannot find a network-attachment-definition (" + name + ") in namespace (" + namespace + "): "
			_, cause, found := strings.Cut(event.Message, prefix)
			if found && (strings.Contains(cause, "not found") || strings.Contains(cause, "could not find the requested resource")) {
				reports += int(max(event.Count, 1))
				network, message = candidate, cause
			}
		}
	}
	if !n.initialized {
		n.initialized, n.initialReports = true, reports
	}
	if reports == n.initialReports {
		return "", ""
	}
	return network, message
}
