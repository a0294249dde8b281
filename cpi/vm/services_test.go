package vm

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/network"
)

var _ = Describe("A VM's Services", func() {
	build := func(properties, networks string) []manifest.Service {
		GinkgoHelper()
		parsed, err := parseProperties(json.RawMessage(properties))
		Expect(err).NotTo(HaveOccurred())
		var parsedNetworks network.Networks
		Expect(json.Unmarshal([]byte(networks), &parsedNetworks)).To(Succeed())
		services, err := buildServices("agent-a", parsed.Services, parsedNetworks)
		Expect(err).NotTo(HaveOccurred())
		return services
	}
	port := func(name string, port, target int32, protocol corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: port, TargetPort: intstr.FromInt32(target), Protocol: protocol}
	}

	It("do not exist by default", func() {
		Expect(build(`{}`, `{"n":{"type":"dynamic","cloud_properties":{"anything":1}}}`)).To(BeEmpty())
	})

	It("are by default named after the VM, and their ports after protocol and number", func() {
		services := build(`{"services":[{"ports":[80,{"port":53,"target_port":5353,"protocol":"UDP"}]},
			{"name":"web","ports":[1]},{"cluster_ip":"None"}]}`, `{}`)
		Expect(services).To(HaveExactElements(
			manifest.Service{Name: "agent-a", Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{
				port("tcp-80", 80, 80, corev1.ProtocolTCP), port("udp-53", 53, 5353, corev1.ProtocolUDP)}},
			And(HaveField("Name", "web"), HaveField("CustomName", true)),
			And(HaveField("Name", "agent-a-2"), HaveField("ClusterIP", "None"), HaveField("Ports", BeEmpty())),
		))
	})

	It("have each port of a range", func() {
		services := build(`{"services":[{"name":"tcp","ports":["1024-1026","80"]}]}`, `{}`)
		Expect(services[0].Ports).To(HaveExactElements(
			port("tcp-1024", 1024, 1024, corev1.ProtocolTCP), port("tcp-1025", 1025, 1025, corev1.ProtocolTCP),
			port("tcp-1026", 1026, 1026, corev1.ProtocolTCP), port("tcp-80", 80, 80, corev1.ProtocolTCP)))
	})

	DescribeTable("reject invalid ports", func(ports, message string) {
		_, err := parseProperties(json.RawMessage(`{"services":[{"ports":[` + ports + `]}]}`))
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("a name", `"http"`, `cloud_properties.services[0].ports[0] is not valid; use a port, a range like "1024-1033", or a hash`),
		Entry("a reversed range", `"9-8"`, "or a hash"),
		Entry("port 0", `"0-8"`, "or a hash"),
		Entry("a range without an end", `"8-"`, "or a hash"),
		Entry("a port above 65535", `"65530-65536"`, "or a hash"),
		Entry("a range of more than 1000 ports", `"1-65535"`, "has 65535 ports"),
	)

	It("of vip networks are named after the IPv4 or IPv6 address", func() {
		services := build(`{}`, `{"b":{"type":"vip","ip":"2001:db8::","cloud_properties":{"ports":[80]}},
			"a":{"type":"vip","ip":"192.0.2.1","cloud_properties":{"ports":[80],"service_type":"LoadBalancer"}}}`)
		Expect(services).To(HaveExactElements(
			And(HaveField("Name", "vip-192-0-2-1"), HaveField("LoadBalancerIP", "192.0.2.1"), HaveField("ExternalIPs", BeEmpty())),
			And(HaveField("Name", "vip-2001-0db8-0000-0000-0000-0000-0000-0000"), HaveField("ExternalIPs", []string{"2001:db8::"})),
		))
	})
})

var _ = Describe("The Service of a vip network with a load balancer", func() {
	build := func(properties string) (manifest.Service, error) {
		var parsedNetworks network.Networks
		Expect(json.Unmarshal([]byte(`{"v":{"type":"vip","ip":"192.0.2.7","cloud_properties":`+properties+`}}`), &parsedNetworks)).To(Succeed())
		services, err := buildServices("agent-a", nil, parsedNetworks)
		if err != nil {
			return manifest.Service{}, err
		}
		return services[0], nil
	}

	It("requests the address only in the annotation, if the annotation has a placeholder for it", func() {
		Expect(build(`{"ports":[80],"service_type":"LoadBalancer","load_balancer_class":"metallb.io/l2",
			"annotations":{"metallb.io/loadBalancerIPs":"{{index .IPs 0}}","team":"a"}}`)).To(And(
			HaveField("Annotations", Equal(map[string]string{"metallb.io/loadBalancerIPs": "192.0.2.7", "team": "a"})),
			HaveField("LoadBalancerIP", BeEmpty()), HaveField("ExternalIPs", BeEmpty()),
			HaveField("LoadBalancerClass", "metallb.io/l2")))
	})

	It("is rejected with an error that names the invalid property", func() {
		_, err := build(`{"ports":[80],"annotations":{"x":"{{index .IPs 1}}"}}`)
		Expect(err).To(MatchError(ContainSubstring("networks.v.cloud_properties.annotations.x: ")))
		_, err = build(`{"ports":[80],"load_balancer_class":"metallb.io/l2"}`)
		Expect(err).To(MatchError(ContainSubstring("networks.v.cloud_properties.load_balancer_class requires type LoadBalancer")))
	})
})

var _ = Describe("The name of the instance group", func() {
	DescribeTable("is read from the env of create_vm",
		func(env, name string) {
			Expect(parseEnv(json.RawMessage(env))).To(HaveField("BOSH.Group", name))
		},
		Entry("with a group", `{"bosh":{"group":"d-cf-web","groups":["d"]}}`, "d-cf-web"),
		Entry("that is an empty hash", `{}`, ""),
		Entry("that is absent", ``, ""),
		Entry("that is null", `null`, ""),
	)
})
