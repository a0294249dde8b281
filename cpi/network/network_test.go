package network

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/cpi/call"
)

func TestNetwork(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "network")
}

// networkCase is a file of testdata/networks: the hash that create_vm gets, as the director or the CLI
// sends it, and what becomes of it. create_vm's answer is the hash itself.
type networkCase struct {
	Networks    json.RawMessage
	Annotations map[string]string
	Agent       json.RawMessage
}

// renderNetworks is what a request with these networks makes.
func renderNetworks(options Options, raw []byte) (annotations map[string]string, agent, answer []byte, err error) {
	GinkgoHelper()
	var networks Networks
	Expect(json.Unmarshal(raw, &networks)).To(Succeed())
	if err := networks.Validate(); err != nil {
		return nil, nil, nil, err
	}
	if annotations, err = networks.Annotate(options, nil); err != nil {
		return nil, nil, nil, err
	}
	settings, err := agentsettings.Options{}.SettingsJSON(agentsettings.VM{Networks: networks.ForAgent()})
	Expect(err).NotTo(HaveOccurred())
	var written struct{ Networks json.RawMessage }
	Expect(json.Unmarshal(settings, &written)).To(Succeed())
	answer, err = json.Marshal(networks)
	return annotations, written.Networks, answer, err
}

// expectVerification expects that the addresses of a Pod are right, or, where there are words, a failed VM and
// them in the error.
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
	It("are there", func() { Expect(files).NotTo(BeEmpty()) })

	DescribeTable("become annotations, the agent's settings, and create_vm's answer", append(entries, func(file string) {
		raw, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		var golden networkCase
		Expect(json.Unmarshal(raw, &golden)).To(Succeed())
		annotations, agent, answer, err := renderNetworks(DefaultOptions(), golden.Networks)
		Expect(err).NotTo(HaveOccurred())
		Expect(annotations).To(Equal(golden.Annotations))
		Expect(agent).To(MatchJSON(golden.Agent))
		Expect(answer).To(MatchJSON(golden.Networks), "with the keys that this CPI does not know, too")
	})...)

	DescribeTable("are refused when no Pod can have such networks", func(networks string, kind call.ErrorKind, message string) {
		_, _, _, err := renderNetworks(DefaultOptions(), []byte(networks))
		Expect(err).To(MatchError(ContainSubstring(message)))
		Expect(kind.Is(err)).To(BeTrue(), err.Error())
	},
		Entry("manual without address", `{"a":{"type":"manual","ip":""}}`, call.CPIError, "networks.a.ip"),
		Entry("manual with a name", `{"a":{"type":"manual","ip":"web-0"}}`, call.CPIError, `"web-0" is not an IP address`),
		Entry("an unknown type", `{"a":{"type":"static","ip":"10.0.0.1"}}`, call.CPIError, "networks.a.type"),
		Entry("two of one family", `{"b":{"type":"manual","ip":"10.0.0.1"},"a":{"type":"manual","ip":"10.1.0.1"}}`, call.NotSupported, "networks a and b"),
		Entry("two of one family in one nic_group", `{"a":{"type":"manual","ip":"10.0.0.1","nic_group":"1"},"b":{"type":"manual","ip":"10.0.0.2","nic_group":"1"}}`,
			call.NotSupported, "networks a and b"),
		Entry("a delegated range", `{"a":{"type":"manual","ip":"10.0.0.16","prefix":"28"}}`, call.NotSupported, "networks.a.prefix 28"),
		Entry("a delegated range as a number", `{"a":{"type":"manual","ip":"fd00::","prefix":80}}`, call.NotSupported, "networks.a.prefix 80"),
	)
})

var _ = Describe("network.address_annotations", func() {
	dual := []byte(`{"a":{"type":"manual","ip":"10.0.0.7"},"b":{"type":"manual","ip":"fd00::7"}}`)

	DescribeTable("ask any CNI by a template", func(value, want string) {
		options := Options{AddressAnnotations: []AddressAnnotation{{Name: "example.org/ip", Value: value}}}
		Expect(options.Validate()).To(Succeed())
		annotations, _, _, err := renderNetworks(options, dual)
		Expect(err).NotTo(HaveOccurred())
		Expect(annotations).To(Equal(map[string]string{"example.org/ip": want}))
	},
		Entry("as a JSON list", `{{json .IPs}}`, `["10.0.0.7","fd00::7"]`),
		Entry("joined", `{{join .IPs ","}}`, "10.0.0.7,fd00::7"),
		Entry("the first", `{{index .IPs 0}}/24`, "10.0.0.7/24"),
		Entry("joined by what is quoted", `{{ join .IPs "\", \"" }}`, `10.0.0.7", "fd00::7`),
		Entry("in JSON of one's own", `[{"name":"default","ips":{{json .IPs}}}]`, `[{"name":"default","ips":["10.0.0.7","fd00::7"]}]`),
	)

	DescribeTable("are checked before anything is done", func(name, value, message string) {
		options := Options{AddressAnnotations: []AddressAnnotation{{Name: name, Value: value}}}
		Expect(options.Validate()).To(MatchError(ContainSubstring(message)))
	},
		Entry("a name that is none", "a b", "x", "address_annotations[0].name"),
		Entry("a template that is none", "a", "{{", "address_annotations[0].value: {{ has no }}"),
		Entry("an action that is not known", "a", "{{.IP}}", `address_annotations[0].value: {{.IP}}: not known; there are {{json .IPs}}, {{join .IPs ","}} and {{index .IPs 0}}`),
		Entry("no separator", "a", "{{join .IPs ,}}", `"," is no separator in quotes`),
		Entry("an address that is not there", "a", "{{index .IPs 1}}", `there is no address "1"`),
	)
})

var _ = Describe("An address that the cluster chose", func() {
	DescribeTable("is there to keep", func(networks string, want bool) {
		var parsed Networks
		Expect(json.Unmarshal([]byte(networks), &parsed)).To(Succeed())
		Expect(parsed.HasDynamicAddress()).To(Equal(want))
	},
		Entry("for a dynamic network", `{"a":{"type":"dynamic"}}`, true),
		Entry("for a dynamic network beside a vip", `{"a":{"type":"dynamic"},"b":{"type":"vip","ip":"203.0.113.7"}}`, true),
		Entry("beside an attachment with an address", `{"a":{"type":"dynamic"},"b":{"type":"manual","ip":"10.0.0.1","cloud_properties":{"network_attachment":"b"}}}`, true),
		Entry("not for a manual network", `{"a":{"type":"manual","ip":"10.0.0.1"}}`, false),
		Entry("not for a dynamic network beside a manual one", `{"a":{"type":"manual","ip":"10.0.0.1"},"b":{"type":"dynamic"}}`, false),
		Entry("not for attachments", `{"a":{"type":"dynamic","cloud_properties":{"network_attachment":"a"}}}`, false),
		Entry("not without networks", `{}`, false),
	)
})

var _ = Describe("A dynamic network's address", func() {
	ownNetwork := AddressAnnotation{Name: annotationDefaultNetwork, Value: `{{join .IPs ","}}`}
	DescribeTable("is asked for again", func(configured []AddressAnnotation, annotations map[string]string, want bool) {
		options := Options{AddressAnnotations: configured, KeepDynamicAddresses: true}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
		Expect(options.KeepsDynamicAddress(Networks{"default": {Type: Dynamic}}, pod)).To(Equal(want))
	},
		Entry("of the cluster's own network", DefaultOptions().AddressAnnotations, nil, true),
		Entry("not of another default network, whose plugin is asked otherwise", DefaultOptions().AddressAnnotations,
			map[string]string{annotationDefaultNetwork: "infra/other"}, false),
		Entry("of a default network that is asked by that very annotation", []AddressAnnotation{ownNetwork},
			map[string]string{annotationDefaultNetwork: "kube-system/default"}, true),
	)
})

var _ = Describe("The addresses of a Pod", func() {
	pod := func(ips ...string) *corev1.Pod {
		var pod corev1.Pod
		for _, ip := range ips {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
		}
		return &pod
	}

	DescribeTable("are compared with those that BOSH chose", func(networks string, pod *corev1.Pod, messages ...string) {
		var parsed Networks
		Expect(json.Unmarshal([]byte(networks), &parsed)).To(Succeed())
		expectVerification(parsed.Verify(pod), messages)
	},
		Entry("the same", `{"a":{"type":"manual","ip":"10.0.0.7"}}`, pod("10.0.0.7")),
		Entry("another", `{"a":{"type":"manual","ip":"10.0.0.7"}}`, pod("10.0.0.8"), "network a", "10.0.0.7", "10.0.0.8"),
		Entry("none", `{"a":{"type":"manual","ip":"10.0.0.7"}}`, pod(), "network a", "10.0.0.7", "no address"),
		Entry("both families, in any order", `{"a":{"type":"manual","ip":"fd00::7"},"b":{"type":"manual","ip":"10.0.0.7"}}`, pod("10.0.0.7", "fd00::7")),
		Entry("one family only", `{"a":{"type":"manual","ip":"fd00::7"},"b":{"type":"manual","ip":"10.0.0.7"}}`, pod("10.0.0.7"), "network a", "fd00::7"),
		Entry("IPv6 as the director writes it", `{"a":{"type":"manual","ip":"fd00:0000:0000:0000:0000:0000:0000:0007"}}`, pod("fd00::7")),
		Entry("a dynamic network's stale address", `{"a":{"type":"dynamic","ip":"10.0.0.7","netmask":"","gateway":""}}`, pod("10.0.0.8")),
		Entry("a vip", `{"a":{"type":"vip","ip":"203.0.113.7"}}`, pod("10.0.0.8")),
	)
})
