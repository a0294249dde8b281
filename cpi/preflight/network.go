package preflight

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// networkPlugin is a network plugin, what it writes on nodes, and the annotation of a Pod by which it gives an address.
type networkPlugin struct {
	name, keyPrefix, annotation string
}

// networkPlugins are those that can be told by what they write on nodes, in annotations or labels. The first that fits is named:
// Calico may do the policies of another.
var networkPlugins = []networkPlugin{
	{"Cilium", "network.cilium.io/", ""},
	{"flannel", "flannel.alpha.coreos.com/", ""},
	{"OVN-Kubernetes", "k8s.ovn.org/", ""},
	{"Kube-OVN", "ovn.kubernetes.io/", "ovn.kubernetes.io/ip_address"},
	{"Antrea", "node.antrea.io/", "ipam.antrea.io/pod-ips"},
	{"Calico", "projectcalico.org/", "cni.projectcalico.org/ipAddrs"},
	{"the plugin of EKS", "eks.amazonaws.com/", ""},
	{"the plugin of GKE", "cloud.google.com/gke-", ""},
	{"the plugin of AKS", "kubernetes.azure.com/", ""},
}

// findNetworkPlugin is the plugin that the nodes tell of.
func findNetworkPlugin(nodes []*corev1.Node) (networkPlugin, bool) {
	for _, known := range networkPlugins {
		for _, node := range nodes {
			for _, marks := range []map[string]string{node.Annotations, node.Labels} {
				for key := range marks {
					if strings.HasPrefix(key, known.keyPrefix) {
						return known, true
					}
				}
			}
		}
	}
	return networkPlugin{}, false
}

// DiscoverNetworkPlugin is the name of the network plugin that the nodes tell of, and the annotation of a Pod by which it gives an
// address; empty where they tell of none, and where it gives none.
func DiscoverNetworkPlugin(nodes []*corev1.Node) (name, annotation string) {
	found, _ := findNetworkPlugin(nodes)
	return found.name, found.annotation
}

func inspectAddresses(ctx context.Context, s *clusterState) finding {
	var requested []string
	for _, annotation := range s.config.Network.AddressAnnotations {
		requested = append(requested, annotation.Name)
	}
	if len(requested) == 0 {
		return fail("network.address_annotations is empty",
			"VMs on manual networks get any address, and fail: name the annotation of your network plugin, or use dynamic networks")
	}
	nodes, err := s.nodes(ctx)
	if err != nil {
		return errorFinding(err, callRightsFile)
	}
	found, known := findNetworkPlugin(nodes)
	message := "asked for by " + strings.Join(requested, ", ")
	const see = "for static addresses see docs/networks.md: "
	switch {
	case !known:
		return undetermined(message+"; which network plugin there is cannot be seen", see+"what the plugin reads, or the CNI shim")
	case slices.Contains(requested, found.annotation):
		return pass(message + "; the nodes have " + found.name + ", which reads " + found.annotation)
	case found.annotation != "":
		return fail(message+"; the nodes have "+found.name+", which reads "+found.annotation, "add it to network.address_annotations")
	case slices.Contains(requested, manifest.AnnotationRequestedAddresses):
		return warn(message+"; the nodes have "+found.name+", which reads no annotation", see+"install the CNI shim, or use dynamic networks")
	}
	return fail(message+"; the nodes have "+found.name+", which reads no annotation",
		see+"install the CNI shim and ask for "+manifest.AnnotationRequestedAddresses+", or use dynamic networks")
}

// inspectAddressPools lists Calico's pools.
func inspectAddressPools(ctx context.Context, s *clusterState) finding {
	pools, err := s.client.IPPools()
	if err != nil {
		return errorFinding(err, networkRightsFile)
	}
	found, err := listUpTo(ctx, pools.Find, kube.Selection{}, maxObjects)
	switch {
	case errors.Is(err, kube.ErrNotServed):
		return pass("the cluster has no Calico, and so no networks with `managed: true`")
	case err != nil:
		return errorFinding(err, networkRightsFile)
	}
	var reserved, others []string
	for _, pool := range found {
		about := pool.Name + " " + pool.Spec.CIDR
		if pool.Spec.NodeSelector == "!all()" {
			reserved = append(reserved, about)
		} else {
			others = append(others, about)
		}
	}
	message := "for all Pods: " + strings.Join(others, ", ")
	if len(reserved) == 0 {
		return warn(
			message+"; kept for BOSH: none",
			"keep a range for manual networks, so that no other Pod takes its addresses: docs/networks.md",
		)
	}
	return pass(message + "; kept for BOSH: " + strings.Join(reserved, ", "))
}
