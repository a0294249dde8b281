package network

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Plugin is a network plugin (CNI) that can be recognized in a cluster.
type Plugin struct {
	Name string
	// DaemonSets are the names of the DaemonSets that install the plugin.
	DaemonSets []string
	// APIGroup is the group of the plugin's custom resources, or "".
	APIGroup string
	// NodeKey is a prefix of annotations or labels of nodes, or "". If NodeKeyOfCloud is set, the cloud sets them, also on nodes with
	// another plugin.
	NodeKey        string
	NodeKeyOfCloud bool
	// Annotations request an address for a Pod. Without any, the plugin does not assign requested addresses, except with the CNI shim.
	Annotations []AddressAnnotation
}

// Calico is the plugin with the annotation that the CPI uses by default.
const Calico = "Calico"

var calicoAnnotations = []AddressAnnotation{{Name: "cni.projectcalico.org/ipAddrs", Value: `{{json .IPs}}`}}

// Plugins lists the known plugins by precedence: Calico may enforce policies for another plugin, and Cilium may be chained behind
// Kube-OVN. docs/guides/networks.md has examples of the annotations; a test compares them.
func Plugins() []Plugin {
	return []Plugin{
		{Name: "the EKS network plugin", DaemonSets: []string{"aws-node"}, NodeKey: "eks.amazonaws.com/", NodeKeyOfCloud: true},
		{Name: "the AKS network plugin", DaemonSets: []string{"azure-cns", "azure-ip-masq-agent"},
			NodeKey: "kubernetes.azure.com/", NodeKeyOfCloud: true},
		{Name: "the GKE network plugin", DaemonSets: []string{"anetd", "netd"}, NodeKey: "cloud.google.com/gke-", NodeKeyOfCloud: true},
		{Name: "flannel", DaemonSets: []string{"kube-flannel-ds", "kube-flannel", "canal", "rke2-canal"}, NodeKey: "flannel.alpha.coreos.com/"},
		{Name: "kindnet", DaemonSets: []string{"kindnet"}},
		{Name: "OVN-Kubernetes", DaemonSets: []string{"ovnkube-node"}, APIGroup: "k8s.ovn.org", NodeKey: "k8s.ovn.org/"},
		{Name: "Kube-OVN", DaemonSets: []string{"kube-ovn-cni"}, APIGroup: "kubeovn.io", NodeKey: "ovn.kubernetes.io/",
			Annotations: []AddressAnnotation{{Name: "ovn.kubernetes.io/ip_address", Value: `{{join .IPs ","}}`}}},
		{Name: "Cilium", DaemonSets: []string{"cilium"}, APIGroup: "cilium.io", NodeKey: "network.cilium.io/"},
		{Name: "Antrea", DaemonSets: []string{"antrea-agent"}, APIGroup: "crd.antrea.io", NodeKey: "node.antrea.io/",
			Annotations: []AddressAnnotation{{Name: "ipam.antrea.io/ippools", Value: "bosh"},
				{Name: "ipam.antrea.io/pod-ips", Value: `{{join .IPs ","}}`}}},
		{Name: "kube-router", DaemonSets: []string{"kube-router"}},
		{Name: "Weave Net", DaemonSets: []string{"weave-net"}},
		{Name: Calico, DaemonSets: []string{"calico-node"}, APIGroup: "crd.projectcalico.org", NodeKey: "projectcalico.org/",
			Annotations: calicoAnnotations},
	}
}

// marks reports whether the node has an annotation or label of the plugin.
func (p Plugin) marks(node *corev1.Node) bool {
	for _, metadata := range []map[string]string{node.Annotations, node.Labels} {
		for key := range metadata {
			if strings.HasPrefix(key, p.NodeKey) {
				return true
			}
		}
	}
	return false
}

// AnnotationNames returns the names of the annotations that request an address.
func (p Plugin) AnnotationNames() []string {
	names := make([]string, 0, len(p.Annotations))
	for _, annotation := range p.Annotations {
		names = append(names, annotation.Name)
	}
	return names
}
