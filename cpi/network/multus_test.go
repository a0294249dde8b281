package network

import (
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
)

var _ = Describe("Networks with a network_attachment", func() {
	DescribeTable("are rejected if they are invalid", func(networks string, kind call.ErrorKind, message string) {
		_, _, _, err := renderNetworks(DefaultOptions(), []byte(networks))
		Expect(err).To(MatchError(ContainSubstring(message)))
		Expect(kind.Is(err)).To(BeTrue(), err.Error())
	},
		Entry("invalid name", `{"a":{"type":"dynamic","cloud_properties":{"network_attachment":"A b"}}}`,
			call.CPIError, "networks.a.cloud_properties.network_attachment"),
		Entry("missing namespace before the slash", `{"a":{"type":"dynamic","cloud_properties":{"network_attachment":"/a"}}}`,
			call.CPIError, `"/a"`),
		Entry("missing name after the slash", `{"a":{"type":"dynamic","cloud_properties":{"network_attachment":"a/"}}}`, call.CPIError, `"a/"`),
		Entry("vip network", `{"a":{"type":"vip","ip":"10.0.0.1","cloud_properties":{"network_attachment":"a"}}}`,
			call.NotSupported, "networks.a"),
		Entry("manual network without an address", `{"a":{"type":"manual","cloud_properties":{"network_attachment":"a"}}}`,
			call.CPIError, "networks.a.ip"),
	)

	It("are rejected together with the same annotation in cloud_properties", func() {
		var networks Networks
		Expect(json.Unmarshal([]byte(`{"a":{"type":"dynamic","cloud_properties":{"network_attachment":"a"}}}`), &networks)).To(Succeed())
		_, err := networks.PodAnnotations(DefaultOptions(), map[string]string{"k8s.v1.cni.cncf.io/networks": "b"})
		Expect(err).To(MatchError(ContainSubstring("mutually exclusive")))
	})

	DescribeTable("are read from the annotation of the Pod", func(annotation string, expected ...string) {
		pod := &corev1.Pod{}
		pod.Namespace = "bosh"
		pod.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": annotation}
		Expect(AttachmentsOf(manifest.VMPod{Pod: pod})).To(HaveExactElements(expected))
	},
		Entry("in JSON format, with and without a namespace", `[{"name":"lab","ips":["10.9.0.50/24"]},{"name":"storage","namespace":"infra"}]`,
			"bosh/lab", "infra/storage"),
		Entry("but not in comma-separated format", "lab,infra/storage"),
	)

	// The format of Multus, with the cluster's network first.
	const status = `[{"name":"k8s-pod-network","ips":["10.244.9.50"],"default":true,"dns":{}},
		{"name":"bosh/lab","interface":"net1","ips":["10.9.0.50"],"mac":"02:00:00:00:00:01","dns":{}},
		{"name":"infra/lab","interface":"net2","ips":["10.9.0.51","fd00:9::51"],"dns":{}}]`

	DescribeTable("are verified with the status from Multus", func(attachment, ip, annotation string, messages ...string) {
		raw, err := json.Marshal(map[string]any{
			"a": map[string]any{"type": "manual", "ip": ip, "cloud_properties": map[string]any{"network_attachment": attachment}},
		})
		Expect(err).NotTo(HaveOccurred())
		var networks Networks
		Expect(json.Unmarshal(raw, &networks)).To(Succeed())
		pod := &corev1.Pod{}
		pod.Namespace = "bosh"
		pod.Status.PodIPs = []corev1.PodIP{{IP: "10.244.9.50"}}
		if annotation != "" {
			pod.Annotations = map[string]string{"k8s.v1.cni.cncf.io/network-status": annotation}
		}
		expectVerification(networks.VerifyAddresses(manifest.VMPod{Pod: pod}), messages)
	},
		Entry("in the Pod's namespace", "lab", "10.9.0.50", status),
		Entry("in another namespace", "infra/lab", "10.9.0.51", status),
		Entry("with an IPv6 address in the director's format", "infra/lab", "fd00:0009:0000:0000:0000:0000:0000:0051", status),
		Entry("with another address", "lab", "10.9.0.52", status, "network a", "10.9.0.52", "bosh/lab", "Pod has 10.9.0.50"),
		Entry("with the address of another attachment", "lab", "10.9.0.51", status, "Pod has 10.9.0.50"),
		Entry("with the address of the Pod's primary interface", "lab", "10.244.9.50", status, "Pod has 10.9.0.50"),
		Entry("with an attachment that does not exist", "none", "10.9.0.50", status, "bosh/none", "no address"),
		Entry("without Multus", "lab", "10.9.0.50", "", "no annotation k8s.v1.cni.cncf.io/network-status"),
		Entry("with an invalid status", "lab", "10.9.0.50", "{", "the status of Multus: is not valid JSON"),
	)
})

var _ = Describe("MultusNetworks", func() {
	const (
		notFound    = `cannot find a network-attachment-definition (storage) in namespace (infra): network-attachment-definitions.k8s.cni.cncf.io "storage" not found`
		unreachable = `cannot find a network-attachment-definition (storage) in namespace (infra): Get "https://10.96.0.1:443": dial tcp: connection refused`
		noAPI       = `cannot find a network-attachment-definition (storage) in namespace (infra): the server could not find the requested resource`
	)
	reported := func(reason, message string, count int32) *corev1.Event {
		return &corev1.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message, Count: count}
	}
	// missingAfter calls Missing with the earlier events, and returns the result of a second call with the later events.
	missingAfter := func(earlier, later []*corev1.Event) (string, string) {
		var networks MultusNetworks
		network, message := networks.Missing(earlier, []string{"default/lab", "infra/storage"})
		Expect([]string{network, message}).To(Equal([]string{"", ""}), "the network may exist by now")
		return networks.Missing(later, []string{"default/lab", "infra/storage"})
	}

	DescribeTable("returns a network that does not exist", func(cause string, earlier, later []*corev1.Event) {
		network, message := missingAfter(earlier, later)
		Expect(network).To(Equal("infra/storage"))
		Expect(message).To(Equal(cause))
	},
		Entry("if Multus reports it", `network-attachment-definitions.k8s.cni.cncf.io "storage" not found`,
			nil, []*corev1.Event{reported("NoNetworkFound", notFound, 1)}),
		Entry("if the kubelet repeats the report", `network-attachment-definitions.k8s.cni.cncf.io "storage" not found`,
			nil, []*corev1.Event{reported("FailedCreatePodSandBox", "plugin type=\"multus\" failed (add): getKubernetesDelegate: "+notFound, 1)}),
		Entry("if it is reported again after the first call", `network-attachment-definitions.k8s.cni.cncf.io "storage" not found`,
			[]*corev1.Event{reported("NoNetworkFound", notFound, 1)}, []*corev1.Event{reported("NoNetworkFound", notFound, 2)}),
		Entry("if the cluster does not have the resource", "the server could not find the requested resource",
			nil, []*corev1.Event{reported("NoNetworkFound", noAPI, 1)}),
	)

	DescribeTable("returns nothing", func(earlier, later []*corev1.Event) {
		network, _ := missingAfter(earlier, later)
		Expect(network).To(BeEmpty())
	},
		Entry("without a new report", []*corev1.Event{reported("NoNetworkFound", notFound, 3)}, []*corev1.Event{reported("NoNetworkFound", notFound, 3)}),
		Entry("if Multus cannot reach the API server", nil, []*corev1.Event{reported("NoNetworkFound", unreachable, 1)}),
		Entry("for the cluster's default network, which Multus then finds in a file", nil,
			[]*corev1.Event{reported("NoNetworkFound", strings.ReplaceAll(notFound, "storage", "cluster-network"), 1)}),
		Entry("for a network of the same name in another namespace", nil,
			[]*corev1.Event{reported("NoNetworkFound", strings.ReplaceAll(notFound, "infra", "default"), 1)}),
	)
})
