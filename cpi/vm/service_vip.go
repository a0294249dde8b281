package vm

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube/document"
)

// vipProperties are the cloud_properties of a vip network.
type vipProperties struct {
	// ServiceType is ClusterIP (the default), with the address as external IP, or LoadBalancer, which requests the address.
	ServiceType corev1.ServiceType `json:"service_type"`
	// LoadBalancerClass, Ports, ExternalTrafficPolicy and SessionAffinity are properties of the Service: see Service.
	LoadBalancerClass     string                              `json:"load_balancer_class"`
	Ports                 []ServicePort                       `json:"ports"`
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy `json:"external_traffic_policy"`
	SessionAffinity       corev1.ServiceAffinity              `json:"session_affinity"`
	// Annotations can contain the address, as in the templates of kubernetes.network.address_annotations. Many load balancers have
	// annotations that request an address, and some reject a Service that also has loadBalancerIP.
	Annotations map[string]string `json:"annotations"`
}

// annotations returns the annotations with the address, and whether one of them contains it.
func (p vipProperties) annotations(key, address string) (annotations map[string]string, requested bool, err error) {
	annotations = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(p.Annotations)) {
		value := p.Annotations[name]
		if annotations[name], err = network.RenderAddressTemplate(value, []string{address}); err != nil {
			return nil, false, call.InvalidPropertyf("%s.annotations.%s: %w", key, name, err)
		}
		requested = requested || annotations[name] != value
	}
	return annotations, requested, nil
}

// buildVIPService returns the Service of the vip network. It is named after the address, so that the next VM with the address takes over
// the Service.
func buildVIPService(key string, n network.Network) (Service, error) {
	address, err := netip.ParseAddr(n.IP)
	if err != nil {
		return Service{}, call.InvalidPropertyf("%s.ip %q is not an IP address; a vip network requires one", key, n.IP)
	}
	var properties vipProperties
	if err := document.Decode(key+".cloud_properties", n.CloudProperties.Raw(), &properties); err != nil {
		return Service{}, call.InvalidPropertyf("%w", err)
	}
	service := Service{
		Name: "vip-" + strings.NewReplacer(".", "-", ":", "-").Replace(address.StringExpanded()),
		Type: properties.ServiceType, Ports: properties.Ports, LoadBalancerClass: properties.LoadBalancerClass,
		ExternalTrafficPolicy: properties.ExternalTrafficPolicy, SessionAffinity: properties.SessionAffinity,
	}
	var requested bool
	if service.Annotations, requested, err = properties.annotations(key+".cloud_properties", address.String()); err != nil {
		return Service{}, err
	}
	switch properties.ServiceType {
	case "", corev1.ServiceTypeClusterIP:
		service.ExternalIPs = []string{address.String()}
	case corev1.ServiceTypeLoadBalancer:
		if !requested {
			service.LoadBalancerIP = address.String()
		}
	default:
		return Service{}, call.InvalidPropertyf("%s.cloud_properties.service_type %q is not valid; use ClusterIP or LoadBalancer",
			key, properties.ServiceType)
	}
	return service, nil
}
