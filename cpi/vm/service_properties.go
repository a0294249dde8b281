package vm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube/document"
)

// Service is an element of the cloud property `services`.
type Service struct {
	// Name is the fixed name of a Service that several VMs share, and that later VMs take over. Without it, the VM gets its own
	// Service, named after the VM.
	Name string `json:"name"`
	// Type is ClusterIP (the default), NodePort or LoadBalancer.
	Type corev1.ServiceType `json:"type"`
	// Headless makes the Service headless: it has no address, only DNS records of its VMs.
	Headless bool `json:"headless"`
	// ClusterIP is a fixed address in the cluster's Service range.
	ClusterIP string `json:"cluster_ip"`
	// ExternalIPs are addresses for which the nodes accept traffic of the Service.
	ExternalIPs []string `json:"external_ips"`
	// LoadBalancerIP is the requested address of the load balancer.
	LoadBalancerIP string `json:"load_balancer_ip"`
	// LoadBalancerClass names the implementation that creates the load balancer.
	LoadBalancerClass string `json:"load_balancer_class"`
	// SourceRanges are the CIDR ranges from which the load balancer accepts traffic.
	SourceRanges []string      `json:"source_ranges"`
	Ports        []ServicePort `json:"ports"`
	// ExternalTrafficPolicy is Cluster or Local. Local preserves the client addresses, and sends traffic only to nodes with a VM of the
	// Service.
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy `json:"external_traffic_policy"`
	// SessionAffinity is ClientIP, which sends all traffic of a client to the same VM, or None.
	SessionAffinity corev1.ServiceAffinity `json:"session_affinity"`
	// PublishNotReadyAddresses makes the Service send traffic also to VMs with a failing readiness_probe.
	PublishNotReadyAddresses bool `json:"publish_not_ready_addresses"`
	// Keep makes the Service outlive its last VM, so that it keeps its address if a VM is deleted before the next one is created.
	Keep        bool              `json:"keep"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// ServicePort is a port of a Service, or a range of ports.
type ServicePort struct {
	// Name is the name of the port, by default the protocol and the port number: tcp-80.
	Name string `json:"name"`
	Port int32  `json:"port"`
	// TargetPort is the port of the VM, by default the same as Port.
	TargetPort int32 `json:"target_port"`
	// Protocol is TCP (the default), UDP or SCTP.
	Protocol corev1.Protocol `json:"protocol"`
	// NodePort is a fixed port on the nodes.
	NodePort int32 `json:"node_port"`

	last int32 // the last port of a range, or 0
}

// Form implements [document.Union].
func (*ServicePort) Form() string { return `a port, a range like "1024-1033", or a hash` }

// Hash implements [document.Union].
func (*ServicePort) Hash() any { return new(servicePortHash) }

type servicePortHash ServicePort

// UnmarshalJSON decodes one of the forms.
func (p *ServicePort) UnmarshalJSON(raw []byte) error {
	if bytes.HasPrefix(raw, []byte("{")) {
		return json.Unmarshal(raw, (*servicePortHash)(p))
	}
	first, last, isRange := strings.Cut(strings.Trim(string(raw), `"`), "-")
	if !isRange {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 16)
	to, toErr := strconv.ParseUint(last, 10, 16)
	switch {
	case err != nil || toErr != nil || from == 0 || to < from:
		return document.FormError("is not valid; use " + p.Form())
	case to-from >= maxPorts:
		return document.FormError(fmt.Sprintf("has %d ports; use at most %d", to-from+1, maxPorts))
	}
	p.Port, p.last = int32(from), int32(to)
	return nil
}

// expand returns the single ports.
func (p ServicePort) expand() []ServicePort {
	if p.last == 0 {
		return []ServicePort{p}
	}
	first, last := p.Port, p.last
	p.last = 0
	var ports []ServicePort
	for p.Port = first; p.Port <= last; p.Port++ {
		ports = append(ports, p)
	}
	return ports
}

// maxPorts limits the size of a range, because each node has rules for each port of a Service.
const maxPorts = 1000

// buildServices returns the Services of the VM, from its cloud_properties and its vip networks.
func buildServices(vmCID string, properties []Service, networks network.Networks) ([]manifest.Service, error) {
	var services []manifest.Service
	keys := map[string]string{} // by name of the Service
	add := func(key string, desired Service, defaultName string) error {
		service, err := desired.build(key, defaultName)
		if err != nil {
			return err
		}
		if other, exists := keys[service.Name]; exists {
			return call.InvalidPropertyf("%s and %s have the same name, %s", other, key, service.Name)
		}
		keys[service.Name] = key
		services = append(services, service)
		return nil
	}
	unnamed := 0
	for i, desired := range properties {
		defaultName := vmCID
		if desired.Name == "" {
			unnamed++
			if unnamed > 1 {
				defaultName = fmt.Sprintf("%s-%d", vmCID, unnamed)
			}
		}
		if err := add(fmt.Sprintf("cloud_properties.services[%d]", i), desired, defaultName); err != nil {
			return nil, err
		}
	}
	for _, name := range networks.Names() {
		if networks[name].Type != network.VIP {
			continue
		}
		key := fmt.Sprintf("networks.%s", name)
		desired, err := buildVIPService(key, networks[name])
		if err != nil {
			return nil, err
		}
		if err := add(key+".cloud_properties", desired, ""); err != nil {
			return nil, err
		}
	}
	return services, nil
}

// build validates the properties, and returns the Service. key is the position of the properties in the request, for errors.
func (s Service) build(key, defaultName string) (manifest.Service, error) {
	built := manifest.Service{
		Name: cmp.Or(s.Name, defaultName), CustomName: s.Name != "", Keep: s.Keep, Type: cmp.Or(s.Type, corev1.ServiceTypeClusterIP),
		ClusterIP: s.ClusterIP, ExternalIPs: s.ExternalIPs, LoadBalancerIP: s.LoadBalancerIP, SourceRanges: s.SourceRanges,
		LoadBalancerClass: s.LoadBalancerClass, Labels: s.Labels, Annotations: s.Annotations,
		ExternalTrafficPolicy: s.ExternalTrafficPolicy, SessionAffinity: s.SessionAffinity, PublishNotReadyAddresses: s.PublishNotReadyAddresses,
	}
	if s.Headless && s.ClusterIP == "" {
		built.ClusterIP = corev1.ClusterIPNone
	}
	for _, check := range []func(string, manifest.Service) error{s.checkName, s.checkType, s.checkAddresses, s.checkTraffic} {
		if err := check(key, built); err != nil {
			return built, err
		}
	}
	if err := call.CheckLabels(key, s.Labels, s.Annotations); err != nil {
		return built, err
	}
	var err error
	built.Ports, err = s.ports(key, built)
	return built, err
}

func (s Service) checkName(key string, built manifest.Service) error {
	if problems := validation.IsDNS1035Label(built.Name); len(problems) > 0 {
		return call.InvalidPropertyf("%s.name %q is not a valid Service name: %s", key, built.Name, problems[0])
	}
	if s.Keep && s.Name == "" {
		return call.InvalidPropertyf("%s.keep requires %s.name: no other VM can take over a Service that is named after this VM", key, key)
	}
	return nil
}

func (s Service) checkType(key string, built manifest.Service) error {
	isLoadBalancer := built.Type == corev1.ServiceTypeLoadBalancer
	switch {
	case !isLoadBalancer && built.Type != corev1.ServiceTypeClusterIP && built.Type != corev1.ServiceTypeNodePort:
		return call.InvalidPropertyf("%s.type %q is not valid; use ClusterIP, NodePort or LoadBalancer", key, s.Type)
	case s.Headless && s.ClusterIP != "" && s.ClusterIP != corev1.ClusterIPNone:
		return call.InvalidPropertyf("%s.cluster_ip and %s.headless are mutually exclusive; remove one", key, key)
	case built.ClusterIP == corev1.ClusterIPNone && built.Type != corev1.ServiceTypeClusterIP:
		return call.InvalidPropertyf("%s.headless requires type ClusterIP, but type is %s", key, built.Type)
	case !isLoadBalancer && s.LoadBalancerIP != "":
		return call.InvalidPropertyf("%s.load_balancer_ip requires type LoadBalancer", key)
	case !isLoadBalancer && s.LoadBalancerClass != "":
		return call.InvalidPropertyf("%s.load_balancer_class requires type LoadBalancer", key)
	case !isLoadBalancer && len(s.SourceRanges) > 0:
		return call.InvalidPropertyf("%s.source_ranges requires type LoadBalancer", key)
	}
	if s.LoadBalancerClass != "" {
		if problems := validation.IsQualifiedName(s.LoadBalancerClass); len(problems) > 0 {
			return call.InvalidPropertyf("%s.load_balancer_class %q: %s", key, s.LoadBalancerClass, problems[0])
		}
	}
	return nil
}

func (s Service) checkTraffic(key string, built manifest.Service) error {
	isExternal := built.Type != corev1.ServiceTypeClusterIP || len(built.ExternalIPs) > 0
	policies := []corev1.ServiceExternalTrafficPolicy{"", corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal}
	affinities := []corev1.ServiceAffinity{"", corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP}
	switch {
	case !slices.Contains(policies, s.ExternalTrafficPolicy):
		return call.InvalidPropertyf("%s.external_traffic_policy %q is not valid; use Cluster or Local", key, s.ExternalTrafficPolicy)
	case s.ExternalTrafficPolicy != "" && !isExternal:
		return call.InvalidPropertyf("%s.external_traffic_policy requires type NodePort or LoadBalancer, or external_ips: "+
			"other Services have no traffic from outside the cluster", key)
	case !slices.Contains(affinities, s.SessionAffinity):
		return call.InvalidPropertyf("%s.session_affinity %q is not valid; use ClientIP or None", key, s.SessionAffinity)
	case s.SessionAffinity == corev1.ServiceAffinityClientIP && built.ClusterIP == corev1.ClusterIPNone:
		return call.InvalidPropertyf("%s.session_affinity and headless are mutually exclusive: clients of a headless Service choose an address "+
			"themselves", key)
	}
	return nil
}

func (s Service) checkAddresses(key string, built manifest.Service) error {
	for _, property := range []struct{ name, address string }{{"cluster_ip", s.ClusterIP}, {"load_balancer_ip", s.LoadBalancerIP}} {
		headless := property.name == "cluster_ip" && property.address == corev1.ClusterIPNone
		if _, err := netip.ParseAddr(property.address); property.address != "" && !headless && err != nil {
			return call.InvalidPropertyf("%s.%s %q is not an IP address", key, property.name, property.address)
		}
	}
	for i, address := range built.ExternalIPs {
		if _, err := netip.ParseAddr(address); err != nil {
			return call.InvalidPropertyf("%s.external_ips[%d] %q is not an IP address", key, i, address)
		}
	}
	for i, sourceRange := range built.SourceRanges {
		if _, err := netip.ParsePrefix(sourceRange); err != nil {
			return call.InvalidPropertyf("%s.source_ranges[%d] %q is not a CIDR range like 10.0.0.0/8", key, i, sourceRange)
		}
	}
	return nil
}

// ports validates the ports, and returns them. Each port gets a name, even a single port: when the ports change, Kubernetes uses the names
// to decide which node ports to keep.
func (s Service) ports(key string, built manifest.Service) ([]corev1.ServicePort, error) {
	if len(s.Ports) == 0 && built.ClusterIP != corev1.ClusterIPNone {
		return nil, call.InvalidPropertyf("%s.ports is missing; list the ports of the Service "+
			"(only a headless Service may omit them)", key)
	}
	var desiredPorts []ServicePort
	for _, entry := range s.Ports {
		desiredPorts = append(desiredPorts, entry.expand()...)
	}
	var ports []corev1.ServicePort
	for i, desired := range desiredPorts {
		port, err := desired.build(fmt.Sprintf("%s.ports[%d]", key, i), built.Type)
		if err != nil {
			return nil, err
		}
		for j, other := range ports {
			switch {
			case other.Name == port.Name:
				return nil, call.InvalidPropertyf("%s.ports[%d] and [%d] have the same name, %s", key, j, i, port.Name)
			case other.Port == port.Port && other.Protocol == port.Protocol:
				return nil, call.InvalidPropertyf("%s.ports[%d] and [%d] are the same port, %d/%s", key, j, i, port.Port, port.Protocol)
			}
		}
		ports = append(ports, port)
	}
	return ports, nil
}

func (p ServicePort) build(key string, service corev1.ServiceType) (corev1.ServicePort, error) {
	built := corev1.ServicePort{
		Port: p.Port, Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), NodePort: p.NodePort,
		TargetPort: intstr.FromInt32(cmp.Or(p.TargetPort, p.Port)),
	}
	if !slices.Contains([]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, built.Protocol) {
		return built, call.InvalidPropertyf("%s.protocol %q is not valid; use TCP, UDP or SCTP", key, p.Protocol)
	}
	built.Name = cmp.Or(p.Name, fmt.Sprintf("%s-%d", strings.ToLower(string(built.Protocol)), p.Port))
	if problems := validation.IsDNS1123Label(built.Name); len(problems) > 0 {
		return built, call.InvalidPropertyf("%s.name %q: %s", key, p.Name, problems[0])
	}
	if problems := validation.IsValidPortNum(int(p.Port)); len(problems) > 0 {
		return built, call.InvalidPropertyf("%s.port %d: %s", key, p.Port, problems[0])
	}
	if problems := validation.IsValidPortNum(int(built.TargetPort.IntVal)); len(problems) > 0 {
		return built, call.InvalidPropertyf("%s.target_port %d: %s", key, p.TargetPort, problems[0])
	}
	switch {
	case p.NodePort == 0:
	case service == corev1.ServiceTypeClusterIP:
		return built, call.InvalidPropertyf("%s.node_port requires a Service of type NodePort or LoadBalancer", key)
	case len(validation.IsValidPortNum(int(p.NodePort))) > 0:
		return built, call.InvalidPropertyf("%s.node_port %d: %s", key, p.NodePort, validation.IsValidPortNum(int(p.NodePort))[0])
	}
	return built, nil
}
