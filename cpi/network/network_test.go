package network

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/extension"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
)

func TestNetwork(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "network")
}

// networkCase is a file in testdata: the argument networks of create_vm, as sent by the director or the CLI, and the expected
// annotations and agent settings. create_vm returns the argument unchanged.
type networkCase struct {
	Networks    json.RawMessage
	Annotations map[string]string
	Agent       json.RawMessage
}

// renderNetworks returns the annotations, the networks in the agent settings, and create_vm's result for these networks.
func renderNetworks(options Options, raw []byte) (annotations map[string]string, agent, result []byte, err error) {
	GinkgoHelper()
	var networks Networks
	Expect(json.Unmarshal(raw, &networks)).To(Succeed())
	if err := networks.Validate(); err != nil {
		return nil, nil, nil, err
	}
	if annotations, err = networks.PodAnnotations(options, nil); err != nil {
		return nil, nil, nil, err
	}
	settings, err := agentsettings.Options{}.SettingsJSON(agentsettings.VM{Networks: networks.ForAgent()})
	Expect(err).NotTo(HaveOccurred())
	var agentSettings struct{ Networks json.RawMessage }
	Expect(json.Unmarshal(settings, &agentSettings)).To(Succeed())
	result, err = json.Marshal(networks)
	return annotations, agentSettings.Networks, result, err
}

// expectVerification expects VMCreationFailed with these messages, or no error if there are none.
func expectVerification(err error, messages []string) {
	GinkgoHelper()
	if len(messages) == 0 {
		Expect(err).NotTo(HaveOccurred())
		return
	}
	for _, message := range messages {
		Expect(err).To(MatchError(ContainSubstring(message)))
	}
	Expect(call.VMCreationFailed.Is(err)).To(BeTrue())
}

var _ = Describe("The director's network hashes", func() {
	var entries []any
	files, _ := filepath.Glob("testdata/*.json")
	for _, file := range files {
		entries = append(entries, Entry(strings.TrimSuffix(filepath.Base(file), ".json"), file))
	}
	It("have test data", func() { Expect(files).NotTo(BeEmpty()) })

	DescribeTable("determine the annotations, the agent settings, and create_vm's result", append(entries, func(file string) {
		raw, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		var golden networkCase
		Expect(json.Unmarshal(raw, &golden)).To(Succeed())
		annotations, agent, result, err := renderNetworks(DefaultOptions(), golden.Networks)
		Expect(err).NotTo(HaveOccurred())
		Expect(annotations).To(Equal(golden.Annotations))
		Expect(agent).To(MatchJSON(golden.Agent))
		Expect(result).To(MatchJSON(golden.Networks), "including keys that the CPI does not know")
	})...)

	DescribeTable("are rejected if a Pod cannot have such networks", func(networks string, kind call.ErrorKind, message string) {
		_, _, _, err := renderNetworks(DefaultOptions(), []byte(networks))
		Expect(err).To(MatchError(ContainSubstring(message)))
		Expect(kind.Is(err)).To(BeTrue(), err.Error())
	},
		Entry("a manual network without an address", `{"a":{"type":"manual","ip":""}}`, call.CPIError, "networks.a.ip"),
		Entry("a manual network with a name as address", `{"a":{"type":"manual","ip":"web-0"}}`, call.CPIError, `"web-0" is not an IP address`),
		Entry("an unknown type", `{"a":{"type":"static","ip":"10.0.0.1"}}`, call.CPIError, "networks.a.type"),
		Entry("two addresses of the same IP family", `{"b":{"type":"manual","ip":"10.0.0.1"},"a":{"type":"manual","ip":"10.1.0.1"}}`,
			call.NotSupported, "networks a and b"),
		Entry("two addresses of the same IP family in one nic_group",
			`{"a":{"type":"manual","ip":"10.0.0.1","nic_group":"1"},"b":{"type":"manual","ip":"10.0.0.2","nic_group":"1"}}`,
			call.NotSupported, "networks a and b"),
		Entry("a delegated range", `{"a":{"type":"manual","ip":"10.0.0.16","prefix":"28"}}`, call.NotSupported, "networks.a.prefix 28"),
		Entry("a delegated range as a number", `{"a":{"type":"manual","ip":"fd00::","prefix":80}}`, call.NotSupported, "networks.a.prefix 80"),
	)
})

var _ = Describe("kubernetes.network.address_annotations", func() {
	dual := []byte(`{"a":{"type":"manual","ip":"10.0.0.7"},"b":{"type":"manual","ip":"fd00::7"}}`)

	DescribeTable("request the addresses with a template", func(value, want string) {
		options := Options{AddressAnnotations: []AddressAnnotation{{Name: "example.org/ip", Value: value}}}
		Expect(options.Validate()).To(Succeed())
		annotations, _, _, err := renderNetworks(options, dual)
		Expect(err).NotTo(HaveOccurred())
		Expect(annotations).To(Equal(map[string]string{"example.org/ip": want}))
	},
		Entry("as a JSON list", `{{json .IPs}}`, `["10.0.0.7","fd00::7"]`),
		Entry("joined with a separator", `{{join .IPs ","}}`, "10.0.0.7,fd00::7"),
		Entry("by index", `{{index .IPs 0}}/24`, "10.0.0.7/24"),
		Entry("joined with a separator that contains quotes", `{{ join .IPs "\", \"" }}`, `10.0.0.7", "fd00::7`),
		Entry("as part of a JSON document", `[{"name":"default","ips":{{json .IPs}}}]`, `[{"name":"default","ips":["10.0.0.7","fd00::7"]}]`),
	)

	DescribeTable("are validated with the configuration", func(name, value, message string) {
		options := Options{AddressAnnotations: []AddressAnnotation{{Name: name, Value: value}}}
		Expect(options.Validate()).To(MatchError(ContainSubstring(message)))
	},
		Entry("invalid name", "a b", "x", "address_annotations[0].name"),
		Entry("unclosed action", "a", "{{", "address_annotations[0].value: unterminated {{ in \"{{\""),
		Entry("unknown action", "a", "{{.IP}}",
			`address_annotations[0].value: {{.IP}}: unknown function; use {{json .IPs}}, {{join .IPs ","}} or {{index .IPs 0}}`),
		Entry("unquoted separator", "a", "{{join .IPs ,}}", `separator "," is not a quoted string`),
		Entry("index out of range", "a", "{{index .IPs 1}}", `index "1" is not valid; use 0 to 0`),
	)
})

var _ = Describe("HasDynamicAddress", func() {
	DescribeTable("reports whether the primary interface has a dynamic address", func(networks string, want bool) {
		var parsed Networks
		Expect(json.Unmarshal([]byte(networks), &parsed)).To(Succeed())
		Expect(parsed.HasDynamicAddress()).To(Equal(want))
	},
		Entry("dynamic network", `{"a":{"type":"dynamic"}}`, true),
		Entry("dynamic and vip networks", `{"a":{"type":"dynamic"},"b":{"type":"vip","ip":"203.0.113.7"}}`, true),
		Entry("dynamic network, and a manual network with a network_attachment",
			`{"a":{"type":"dynamic"},"b":{"type":"manual","ip":"10.0.0.1","cloud_properties":{"network_attachment":"b"}}}`, true),
		Entry("manual network", `{"a":{"type":"manual","ip":"10.0.0.1"}}`, false),
		Entry("manual and dynamic networks", `{"a":{"type":"manual","ip":"10.0.0.1"},"b":{"type":"dynamic"}}`, false),
		Entry("dynamic network with a network_attachment",
			`{"a":{"type":"dynamic","cloud_properties":{"network_attachment":"a"}}}`, false),
		Entry("no networks", `{}`, false),
	)
})

var _ = Describe("KeepsDynamicAddress", func() {
	defaultNetwork := AddressAnnotation{Name: annotationDefaultNetwork, Value: `{{join .IPs ","}}`}
	DescribeTable("reports whether the address can be requested later",
		func(configured []AddressAnnotation, annotations map[string]string, want bool) {
			options := Options{AddressAnnotations: configured, KeepDynamicAddresses: true}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
			Expect(options.KeepsDynamicAddress(Networks{"default": {Type: Dynamic}}, manifest.VMPod{Pod: pod})).To(Equal(want))
		},
		Entry("on the cluster's network", DefaultOptions().AddressAnnotations, nil, true),
		Entry("on another default network, with annotations for the cluster's plugin", DefaultOptions().AddressAnnotations,
			map[string]string{annotationDefaultNetwork: "infra/other"}, false),
		Entry("on another default network that the configured annotation selects", []AddressAnnotation{defaultNetwork},
			map[string]string{annotationDefaultNetwork: "kube-system/default"}, true),
	)
})

var _ = Describe("The addresses of a Pod", func() {
	podWith := func(ips ...string) *corev1.Pod {
		var pod corev1.Pod
		for _, ip := range ips {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
		}
		return &pod
	}

	DescribeTable("are compared with those assigned by BOSH", func(networks string, pod *corev1.Pod, messages ...string) {
		var parsed Networks
		Expect(json.Unmarshal([]byte(networks), &parsed)).To(Succeed())
		expectVerification(parsed.VerifyAddresses(manifest.VMPod{Pod: pod}), messages)
	},
		Entry("same address", `{"a":{"type":"manual","ip":"10.0.0.7"}}`, podWith("10.0.0.7")),
		Entry("other address", `{"a":{"type":"manual","ip":"10.0.0.7"}}`, podWith("10.0.0.8"), "network a", "10.0.0.7", "10.0.0.8"),
		Entry("no address", `{"a":{"type":"manual","ip":"10.0.0.7"}}`, podWith(), "network a", "10.0.0.7", "no address"),
		Entry("both IP families, in another order", `{"a":{"type":"manual","ip":"fd00::7"},"b":{"type":"manual","ip":"10.0.0.7"}}`,
			podWith("10.0.0.7", "fd00::7")),
		Entry("only one of two IP families", `{"a":{"type":"manual","ip":"fd00::7"},"b":{"type":"manual","ip":"10.0.0.7"}}`,
			podWith("10.0.0.7"), "network a", "fd00::7"),
		Entry("IPv6 address in the director's format", `{"a":{"type":"manual","ip":"fd00:0000:0000:0000:0000:0000:0000:0007"}}`,
			podWith("fd00::7")),
		Entry("stale address of a dynamic network", `{"a":{"type":"dynamic","ip":"10.0.0.7","netmask":"","gateway":""}}`,
			podWith("10.0.0.8")),
		Entry("vip network", `{"a":{"type":"vip","ip":"203.0.113.7"}}`, podWith("10.0.0.8")),
	)
})

var _ = Describe("The table of network plugins", func() {
	It("matches the examples in docs/guides/networks.md", func() {
		raw, err := os.ReadFile("../../docs/guides/networks.md")
		Expect(err).NotTo(HaveOccurred())
		documented := map[string][]AddressAnnotation{}
		for _, example := range regexp.MustCompile("(?s)\n\\*\\*([A-Za-z-]+)\\.\\*\\*[^`]*(?:`[^`\n]+`[^`]*)*```yaml\n(.*?)```").FindAllStringSubmatch(string(raw), -1) {
			var options Options
			Expect(yaml.Unmarshal([]byte(example[2]), &options)).To(Succeed())
			documented[example[1]] = options.AddressAnnotations
		}
		for _, plugin := range Plugins() {
			if plugin.Name != Calico && len(plugin.Annotations) > 0 {
				Expect(documented).To(HaveKeyWithValue(plugin.Name, plugin.Annotations))
			}
		}
	})
})

var _ = Describe("The network plugin of a cluster", func() {
	type contents struct {
		daemonSet, group string
		nodeKeys         []string
		denied           string
	}
	detect := func(ctx context.Context, cluster contents) (DetectedPlugin, error) {
		api := memoryapi.New()
		if cluster.daemonSet != "" {
			api.Add("daemonsets", "kube-system", &extension.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: cluster.daemonSet}})
		}
		api.Groups = []metav1.APIGroup{{Name: "apps"}, {Name: cluster.group}}
		api.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if cluster.denied == "" || !strings.HasSuffix(r.URL.Path, cluster.denied) {
				return false
			}
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		client, err := kube.NewForConfig(api.Config(), "bosh", 0)
		Expect(err).NotTo(HaveOccurred())
		return DetectPlugin(ctx, client, func(context.Context) ([]*corev1.Node, error) {
			node := &corev1.Node{}
			node.Labels = map[string]string{}
			for _, key := range cluster.nodeKeys {
				node.Labels[key] = ""
			}
			return []*corev1.Node{{}, node}, nil
		})
	}

	DescribeTable("is detected", func(ctx context.Context, name, detectedBy string, cluster contents) {
		Expect(detect(ctx, cluster)).To(And(HaveField("Name", name), HaveField("DetectedBy", detectedBy)))
	},
		Entry("by a DaemonSet", "flannel", "DaemonSet kube-flannel-ds",
			contents{daemonSet: "kube-flannel-ds", group: "crd.projectcalico.org", nodeKeys: []string{"projectcalico.org/IPv4Address"}}),
		Entry("by nodes", "flannel", "annotations or labels of nodes",
			contents{group: "crd.projectcalico.org", nodeKeys: []string{"flannel.alpha.coreos.com/backend-type"}}),
		Entry("by an API group, even in a cloud", "Cilium", "API group cilium.io",
			contents{group: "cilium.io", nodeKeys: []string{"eks.amazonaws.com/nodegroup"}}),
		Entry("by nodes of a cloud", "the EKS network plugin", "annotations or labels of nodes",
			contents{nodeKeys: []string{"eks.amazonaws.com/nodegroup"}}),
		Entry("by nodes of a cloud with another plugin", "Cilium", "annotations or labels of nodes",
			contents{nodeKeys: []string{"eks.amazonaws.com/nodegroup", "network.cilium.io/ipv4-pod-cidr"}}),
		Entry("without permission to list DaemonSets", "Calico", "API group crd.projectcalico.org",
			contents{group: "crd.projectcalico.org", denied: "/daemonsets"}),
		Entry("not", "", "", contents{nodeKeys: []string{"kubernetes.io/hostname"}}),
	)

	It("is unknown, with the reason, without permissions", func(ctx context.Context) {
		_, err := detect(ctx, contents{denied: "/daemonsets"})
		Expect(err).To(MatchError(kube.ErrDenied))
	})
})
