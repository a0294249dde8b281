package preflight

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// networkPlugin is a network plugin, the prefix of the annotations or labels that it sets on nodes, and the annotation by which a Pod
// requests an address; "" if there is none.
type networkPlugin struct {
	name, keyPrefix, annotation string
}

// networkPlugins are the plugins that can be recognized by annotations or labels of nodes. The first match wins: Calico comes after
// the others, because it may implement network policies next to another plugin.
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

// findNetworkPlugin returns the plugin that the annotations and labels of the nodes indicate.
func findNetworkPlugin(nodes []*corev1.Node) (networkPlugin, bool) {
	for _, known := range networkPlugins {
		for _, node := range nodes {
			for _, metadata := range []map[string]string{node.Annotations, node.Labels} {
				for key := range metadata {
					if strings.HasPrefix(key, known.keyPrefix) {
						return known, true
					}
				}
			}
		}
	}
	return networkPlugin{}, false
}

// DiscoverNetworkPlugin returns the name of the network plugin that the annotations and labels of the nodes indicate, and the
// annotation by which a Pod requests an address; "" if they indicate none, or the plugin has no such annotation.
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
			"add the annotation of your network plugin, or use dynamic networks; VMs on manual networks get other addresses and fail")
	}
	nodes, err := s.nodes(ctx)
	if err != nil {
		return errorFinding(err, callPermissionsFile)
	}
	found, known := findNetworkPlugin(nodes)
	message := "requested by " + strings.Join(requested, ", ")
	const see = "for static addresses see docs/networks.md: "
	switch {
	case !known:
		return undetermined(message+"; cannot determine the network plugin", see+"the annotation of your plugin, or the CNI shim")
	case slices.Contains(requested, found.annotation):
		return pass(message + "; the nodes have " + found.name + ", which reads " + found.annotation)
	case found.annotation != "":
		return fail(message+"; the nodes have "+found.name+", which reads "+found.annotation, "add it to network.address_annotations")
	case slices.Contains(requested, manifest.AnnotationRequestedAddresses):
		return warn(message+"; the nodes have "+found.name+", which reads no annotation", see+"install the CNI shim, or use dynamic networks")
	}
	return fail(message+"; the nodes have "+found.name+", which reads no annotation",
		see+"install the CNI shim and add "+manifest.AnnotationRequestedAddresses+" to network.address_annotations, or use dynamic networks")
}

// inspectAddressPools lists Calico's IPPools.
func inspectAddressPools(ctx context.Context, s *clusterState) finding {
	pools, err := s.client.IPPools()
	if err != nil {
		return errorFinding(err, networkPermissionsFile)
	}
	found, err := listUpTo(ctx, pools.Find, kube.Selection{}, maxObjects)
	switch {
	case errors.Is(err, kube.ErrNotServed):
		return pass("the cluster does not have Calico; networks with `managed: true` require it")
	case err != nil:
		return errorFinding(err, networkPermissionsFile)
	}
	var reserved, others []string
	for _, pool := range found {
		description := pool.Name + " " + pool.Spec.CIDR
		if pool.Spec.NodeSelector == "!all()" {
			reserved = append(reserved, description)
		} else {
			others = append(others, description)
		}
	}
	message := "for all Pods: " + strings.Join(others, ", ")
	if len(reserved) == 0 {
		return warn(message+"; reserved ranges: none",
			"create a reserved range for manual networks, so that other Pods are not assigned its addresses: docs/networks.md")
	}
	return pass(message + "; reserved ranges: " + strings.Join(reserved, ", "))
}
