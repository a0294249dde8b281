package network

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
)

var _ = Describe("Networks with a network_attachment", func() {
	DescribeTable("are refused when nothing can be meant by them", func(networks string, kind call.ErrorKind, message string) {
		_, _, _, err := renderNetworks(DefaultOptions(), []byte(networks))
		Expect(err).To(MatchError(ContainSubstring(message)))
		Expect(kind.Is(err)).To(BeTrue(), err.Error())
	},
		Entry("a name that is none", `{"a":{"type":"dynamic","cloud_properties":{"network_attachment":"A b"}}}`, call.CPIError, "networks.a.cloud_properties.network_attachment"),
		Entry("no namespace before the slash", `{"a":{"type":"dynamic","cloud_properties":{"network_attachment":"/a"}}}`, call.CPIError, `"/a"`),
		Entry("no name after it", `{"a":{"type":"dynamic","cloud_properties":{"network_attachment":"a/"}}}`, call.CPIError, `"a/"`),
		Entry("a vip", `{"a":{"type":"vip","ip":"10.0.0.1","cloud_properties":{"network_attachment":"a"}}}`, call.NotSupported, "networks.a"),
		Entry("a manual one without address", `{"a":{"type":"manual","cloud_properties":{"network_attachment":"a"}}}`, call.CPIError, "networks.a.ip"),
	)

	It("exclude an annotation of the operator's for the same", func() {
		var networks Networks
		Expect(json.Unmarshal([]byte(`{"a":{"type":"dynamic","cloud_properties":{"network_attachment":"a"}}}`), &networks)).To(Succeed())
		_, err := networks.Annotate(DefaultOptions(), map[string]string{"k8s.v1.cni.cncf.io/networks": "b"})
		Expect(err).To(MatchError(ContainSubstring("exclude each other")))
	})

	DescribeTable("are those that their Pod asks for", func(annotation string, expected ...string) {
		pod := &corev1.Pod{}
		pod.Namespace = "bosh"
		pod.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": annotation}
		Expect(AttachmentsOf(pod)).To(HaveExactElements(expected))
	},
		Entry("by name, or by namespace and name", `[{"name":"lab","ips":["10.9.0.50/24"]},{"name":"storage","namespace":"infra"}]`, "bosh/lab", "infra/storage"),
		Entry("but for what the operator asks for in another form", "lab,infra/storage"),
	)

	// As Multus writes it, with the Pod's own network first.
	const status = `[{"name":"k8s-pod-network","ips":["10.244.9.50"],"default":true,"dns":{}},
		{"name":"bosh/lab","interface":"net1","ips":["10.9.0.50"],"mac":"02:00:00:00:00:01","dns":{}},
		{"name":"infra/lab","interface":"net2","ips":["10.9.0.51","fd00:9::51"],"dns":{}}]`

	DescribeTable("are verified by what Multus reports", func(attachment, ip, annotation string, messages ...string) {
		raw, err := json.Marshal(map[string]any{"a": map[string]any{"type": "manual", "ip": ip, "cloud_properties": map[string]any{"network_attachment": attachment}}})
		Expect(err).NotTo(HaveOccurred())
		var networks Networks
		Expect(json.Unmarshal(raw, &networks)).To(Succeed())
		pod := &corev1.Pod{}
		pod.Namespace = "bosh"
		pod.Status.PodIPs = []corev1.PodIP{{IP: "10.244.9.50"}}
		if annotation != "" {
			pod.Annotations = map[string]string{"k8s.v1.cni.cncf.io/network-status": annotation}
		}
		expectVerification(networks.Verify(pod), messages)
	},
		Entry("the Pod's own namespace", "lab", "10.9.0.50", status),
		Entry("another namespace", "infra/lab", "10.9.0.51", status),
		Entry("IPv6 as the director writes it", "infra/lab", "fd00:0009:0000:0000:0000:0000:0000:0051", status),
		Entry("another address", "lab", "10.9.0.52", status, "network a", "10.9.0.52", "bosh/lab", "got 10.9.0.50"),
		Entry("an address of another attachment", "lab", "10.9.0.51", status, "got 10.9.0.50"),
		Entry("the Pod's own address", "lab", "10.244.9.50", status, "got 10.9.0.50"),
		Entry("an attachment that is not there", "none", "10.9.0.50", status, "bosh/none", "no address"),
		Entry("no Multus", "lab", "10.9.0.50", "", "no annotation k8s.v1.cni.cncf.io/network-status"),
		Entry("a report that cannot be read", "lab", "10.9.0.50", "{", "not as Multus writes it"),
	)
})
