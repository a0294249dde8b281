package vm

import (
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
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Service is one of a VM's `services`.
type Service struct {
	// Name makes the Service one that several VMs share, and that the next VM takes over. Without it the
	// Service is the VM's own and named after it.
	Name string `json:"name"`
	// Type is ClusterIP (the default), NodePort or LoadBalancer.
	Type corev1.ServiceType `json:"type"`
	// Headless gives the Service no address, only DNS records of its VMs.
	Headless bool `json:"headless"`
	// ClusterIP is a fixed address within the s.
	ClusterIP string `json:"cluster_ip"`
	// ExternalIPs are addresses at which the nodes answer for the Service.
	ExternalIPs []string `json:"external_ips"`
	// LoadBalancerIP asks the load balancer for an address, LoadBalancerClass names who makes it, and
	// SourceRanges are the networks that it lets in.
	LoadBalancerIP    string       `json:"load_balancer_ip"`
	LoadBalancerClass string       `json:"load_balancer_class"`
	SourceRanges      []string     `json:"source_ranges"`
	Ports             ServicePorts `json:"ports"`
	// ExternalTrafficPolicy is Local for clients' own addresses, and traffic to nodes with a VM alone; or Cluster.
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy `json:"external_traffic_policy"`
	// SessionAffinity is ClientIP, which sends a client to the same VM again, or None.
	SessionAffinity corev1.ServiceAffinity `json:"session_affinity"`
	// PublishNotReadyAddresses has the Service reach VMs whose readiness_probe fails, too.
	PublishNotReadyAddresses bool `json:"publish_not_ready_addresses"`
	// Keep lets the Service outlive its last VM, so that a VM that is deleted before the next one is
	// made loses no address.
	Keep        bool              `json:"keep"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// ServicePorts are a Service's ports: each a number, a range of numbers like "1024-1033", or a hash.
type ServicePorts []ServicePort

// maxPorts bounds a range: Kubernetes keeps a rule on each node for each port of a Service.
const maxPorts = 1000

// UnmarshalJSON expands ranges.
func (p *ServicePorts) UnmarshalJSON(raw []byte) error {
	var given []json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		return fmt.Errorf("ports are a list: %w", err)
	}
	for _, entry := range given {
		var text string
		if json.Unmarshal(entry, &text) == nil {
			ports, err := portRange(text)
			if err != nil {
				return err
			}
			*p = append(*p, ports...)
			continue
		}
		var port ServicePort
		if err := json.Unmarshal(entry, &port); err != nil {
			return err
		}
		*p = append(*p, port)
	}
	return nil
}

// portRange returns the ports of a range like "1024-1033".
func portRange(text string) ([]ServicePort, error) {
	first, last, _ := strings.Cut(text, "-")
	from, err := strconv.ParseUint(first, 10, 16)
	to, toErr := strconv.ParseUint(last, 10, 16)
	switch {
	case err != nil || toErr != nil || from == 0 || to < from:
		return nil, fmt.Errorf("ports: %q is neither a port, a range like \"1024-1033\", nor a hash", text)
	case to-from >= maxPorts:
		return nil, fmt.Errorf("ports: %q are %d ports, and a Service takes no range of more than %d", text, to-from+1, maxPorts)
	}
	ports := make([]ServicePort, 0, to-from+1)
	for port := from; port <= to; port++ {
		ports = append(ports, ServicePort{Port: int32(port)})
	}
	return ports, nil
}

// ServicePort is one port of a Service.
type ServicePort struct {
	// Name is the port's; made of protocol and port by default.
	Name string `json:"name"`
	Port int32  `json:"port"`
	// TargetPort is the machine's port; the same by default.
	TargetPort int32 `json:"target_port"`
	// Protocol is TCP (the default), UDP or SCTP.
	Protocol corev1.Protocol `json:"protocol"`
	// NodePort is a fixed port of the nodes.
	NodePort int32 `json:"node_port"`
}

// buildServices returns all that the VM is behind: its services and its vip networks' addresses.
func buildServices(vmCID string, properties []Service, networks network.Networks) ([]manifest.Service, error) {
	var services []manifest.Service
	names := map[string]string{}
	add := func(key string, desired Service, fallback string) error {
		service, err := desired.build(key, fallback)
		if err != nil {
			return err
		}
		if other, taken := names[service.Name]; taken {
			return call.Invalid("%s and %s are both named %s", other, key, service.Name)
		}
		names[service.Name] = key
		services = append(services, service)
		return nil
	}
	unnamed := 0
	for i, desired := range properties {
		fallback := vmCID
		if desired.Name == "" {
			unnamed++
			if unnamed > 1 {
				fallback = fmt.Sprintf("%s-%d", vmCID, unnamed)
			}
		}
		if err := add(fmt.Sprintf("cloud_properties.services[%d]", i), desired, fallback); err != nil {
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

// build checks the Service; key is where it stands in the request.
func (s Service) build(key, fallback string) (manifest.Service, error) {
	built := manifest.Service{
		Name: s.Name, Fixed: s.Name != "", Keep: s.Keep, Type: s.Type, ClusterIP: s.ClusterIP, ExternalIPs: s.ExternalIPs,
		LoadBalancerIP: s.LoadBalancerIP, SourceRanges: s.SourceRanges, Labels: s.Labels, Annotations: s.Annotations,
		ExternalTrafficPolicy: s.ExternalTrafficPolicy, SessionAffinity: s.SessionAffinity, PublishNotReadyAddresses: s.PublishNotReadyAddresses,
	}
	if built.Type == "" {
		built.Type = corev1.ServiceTypeClusterIP
	}
	if built.Name == "" {
		built.Name = fallback
	}
	if s.Headless && s.ClusterIP == "" {
		built.ClusterIP = corev1.ClusterIPNone
	}
	if s.LoadBalancerClass != "" {
		built.LoadBalancerClass = &s.LoadBalancerClass
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
	if why := validation.IsDNS1035Label(built.Name); len(why) > 0 {
		return call.Invalid("%s.name: a Service cannot be named %q: %s", key, built.Name, why[0])
	}
	if s.Keep && s.Name == "" {
		return call.Invalid("%s.keep needs %s.name: no other VM can take over a Service that is named after this one", key, key)
	}
	return nil
}

func (s Service) checkType(key string, built manifest.Service) error {
	isLoadBalancer := built.Type == corev1.ServiceTypeLoadBalancer
	switch {
	case !isLoadBalancer && built.Type != corev1.ServiceTypeClusterIP && built.Type != corev1.ServiceTypeNodePort:
		return call.Invalid("%s.type %q is none of ClusterIP, NodePort, LoadBalancer", key, s.Type)
	case s.Headless && s.ClusterIP != "" && s.ClusterIP != corev1.ClusterIPNone:
		return call.Invalid("%s.cluster_ip is an address, but %s.headless asks for none", key, key)
	case built.ClusterIP == corev1.ClusterIPNone && built.Type != corev1.ServiceTypeClusterIP:
		return call.Invalid("%s.headless does not go with type %s", key, built.Type)
	case !isLoadBalancer && s.LoadBalancerIP != "":
		return call.Invalid("%s.load_balancer_ip needs type LoadBalancer", key)
	case !isLoadBalancer && s.LoadBalancerClass != "":
		return call.Invalid("%s.load_balancer_class needs type LoadBalancer", key)
	case !isLoadBalancer && len(s.SourceRanges) > 0:
		return call.Invalid("%s.source_ranges needs type LoadBalancer", key)
	}
	if s.LoadBalancerClass != "" {
		if why := validation.IsQualifiedName(s.LoadBalancerClass); len(why) > 0 {
			return call.Invalid("%s.load_balancer_class %q: %s", key, s.LoadBalancerClass, why[0])
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
		return call.Invalid("%s.external_traffic_policy %q is none of Cluster, Local", key, s.ExternalTrafficPolicy)
	case s.ExternalTrafficPolicy != "" && !isExternal:
		return call.Invalid("%s.external_traffic_policy needs type NodePort or LoadBalancer, or external_ips: "+
			"nothing else lets traffic in from outside of the cluster", key)
	case !slices.Contains(affinities, s.SessionAffinity):
		return call.Invalid("%s.session_affinity %q is none of ClientIP, None", key, s.SessionAffinity)
	case s.SessionAffinity == corev1.ServiceAffinityClientIP && built.ClusterIP == corev1.ClusterIPNone:
		return call.Invalid("%s.session_affinity does not go with headless: clients choose among the VMs' addresses themselves", key)
	}
	return nil
}

func (s Service) checkAddresses(key string, built manifest.Service) error {
	for _, given := range []struct{ field, address string }{{"cluster_ip", s.ClusterIP}, {"load_balancer_ip", s.LoadBalancerIP}} {
		headless := given.field == "cluster_ip" && given.address == corev1.ClusterIPNone
		if _, err := netip.ParseAddr(given.address); given.address != "" && !headless && err != nil {
			return call.Invalid("%s.%s %q is not an IP address", key, given.field, given.address)
		}
	}
	for i, address := range built.ExternalIPs {
		if _, err := netip.ParseAddr(address); err != nil {
			return call.Invalid("%s.external_ips[%d] %q is not an IP address", key, i, address)
		}
	}
	for i, sourceRange := range built.SourceRanges {
		if _, err := netip.ParsePrefix(sourceRange); err != nil {
			return call.Invalid("%s.source_ranges[%d] %q is not a network like 10.0.0.0/8", key, i, sourceRange)
		}
	}
	return nil
}

// ports checks and names the ports. Every port gets a name, even a single one: by it Kubernetes knows
// which node port to keep when the ports change.
func (s Service) ports(key string, built manifest.Service) ([]corev1.ServicePort, error) {
	if len(s.Ports) == 0 && built.ClusterIP != corev1.ClusterIPNone {
		return nil, call.Invalid("%s.ports is missing: an address is a Service here, which needs the ports that it is for; "+
			"only a headless one can do without", key)
	}
	var ports []corev1.ServicePort
	for i, desired := range s.Ports {
		port, err := desired.build(fmt.Sprintf("%s.ports[%d]", key, i), built.Type)
		if err != nil {
			return nil, err
		}
		for j, other := range ports {
			switch {
			case other.Name == port.Name:
				return nil, call.Invalid("%s.ports[%d] and [%d] have the same name, %s", key, j, i, port.Name)
			case other.Port == port.Port && other.Protocol == port.Protocol:
				return nil, call.Invalid("%s.ports[%d] and [%d] are the same port, %d/%s", key, j, i, port.Port, port.Protocol)
			}
		}
		ports = append(ports, port)
	}
	return ports, nil
}

func (p ServicePort) build(key string, service corev1.ServiceType) (corev1.ServicePort, error) {
	built := corev1.ServicePort{
		Name: p.Name, Port: p.Port, Protocol: p.Protocol, NodePort: p.NodePort, TargetPort: intstr.FromInt32(p.TargetPort),
	}
	if p.TargetPort == 0 {
		built.TargetPort = intstr.FromInt32(p.Port)
	}
	if built.Protocol == "" {
		built.Protocol = corev1.ProtocolTCP
	}
	if !slices.Contains([]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, built.Protocol) {
		return built, call.Invalid("%s.protocol %q is none of TCP, UDP, SCTP", key, p.Protocol)
	}
	if built.Name == "" {
		built.Name = fmt.Sprintf("%s-%d", strings.ToLower(string(built.Protocol)), p.Port)
	}
	if why := validation.IsDNS1123Label(built.Name); len(why) > 0 {
		return built, call.Invalid("%s.name %q: %s", key, p.Name, why[0])
	}
	if why := validation.IsValidPortNum(int(p.Port)); len(why) > 0 {
		return built, call.Invalid("%s.port %d: %s", key, p.Port, why[0])
	}
	if why := validation.IsValidPortNum(int(built.TargetPort.IntVal)); len(why) > 0 {
		return built, call.Invalid("%s.target_port %d: %s", key, p.TargetPort, why[0])
	}
	switch {
	case p.NodePort == 0:
	case service == corev1.ServiceTypeClusterIP:
		return built, call.Invalid("%s.node_port needs a Service of type NodePort or LoadBalancer", key)
	case len(validation.IsValidPortNum(int(p.NodePort))) > 0:
		return built, call.Invalid("%s.node_port %d: %s", key, p.NodePort, validation.IsValidPortNum(int(p.NodePort))[0])
	}
	return built, nil
}

// UnmarshalJSON takes a number alone for the port.
func (p *ServicePort) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &p.Port) == nil {
		return nil
	}
	type fields ServicePort
	return call.DecodeStrict("port", raw, (*fields)(p))
}
