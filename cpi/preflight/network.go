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

// plugin is a network plugin, what it writes on nodes, and the annotation of a Pod by which it gives an address.
type plugin struct {
	name, mark, annotation string
}

// plugins are those that can be told by what they write on nodes, in annotations or labels. The first that fits is named:
// Calico may do the policies of another.
var plugins = []plugin{
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

// seen is the plugin that the nodes tell of.
func seen(nodes []*corev1.Node) (plugin, bool) {
	for _, known := range plugins {
		for _, node := range nodes {
			for _, marks := range []map[string]string{node.Annotations, node.Labels} {
				for key := range marks {
					if strings.HasPrefix(key, known.mark) {
						return known, true
					}
				}
			}
		}
	}
	return plugin{}, false
}

// NetworkPlugin is the name of the network plugin that the nodes tell of, and the annotation of a Pod by which it gives an
// address; empty where they tell of none, and where it gives none.
func NetworkPlugin(nodes []*corev1.Node) (name, annotation string) {
	found, _ := seen(nodes)
	return found.name, found.annotation
}

func lookAtAddresses(ctx context.Context, s *subject) finding {
	var asked []string
	for _, annotation := range s.config.Network.AddressAnnotations {
		asked = append(asked, annotation.Name)
	}
	if len(asked) == 0 {
		return fails("network.address_annotations is empty",
			"VMs on manual networks get any address, and fail: name the annotation of your network plugin, or use dynamic networks")
	}
	nodes, err := s.nodes(ctx)
	if err != nil {
		return failed(err, rightsOfCalls)
	}
	found, known := seen(nodes)
	said := "asked for by " + strings.Join(asked, ", ")
	const see = "for static addresses see docs/networks.md: "
	switch {
	case !known:
		return unknown(said+"; which network plugin there is cannot be seen", see+"what the plugin reads, or the CNI shim")
	case slices.Contains(asked, found.annotation):
		return ok(said + "; the nodes have " + found.name + ", which reads " + found.annotation)
	case found.annotation != "":
		return fails(said+"; the nodes have "+found.name+", which reads "+found.annotation, "add it to network.address_annotations")
	case slices.Contains(asked, manifest.AnnotationAddress):
		return warns(said+"; the nodes have "+found.name+", which reads no annotation", see+"install the CNI shim, or use dynamic networks")
	}
	return fails(said+"; the nodes have "+found.name+", which reads no annotation",
		see+"install the CNI shim and ask for "+manifest.AnnotationAddress+", or use dynamic networks")
}

// lookAtPools lists Calico's pools.
func lookAtPools(ctx context.Context, s *subject) finding {
	among, err := s.client.IPPools()
	if err != nil {
		return failed(err, rightsOfNetworks)
	}
	found, err := some(ctx, among.Find, kube.Selection{}, manyObjects)
	switch {
	case errors.Is(err, kube.ErrNotServed):
		return ok("the cluster has no Calico, and so no networks with `managed: true`")
	case err != nil:
		return failed(err, rightsOfNetworks)
	}
	var kept, others []string
	for _, pool := range found {
		about := pool.Name + " " + pool.Spec.CIDR
		if pool.Spec.NodeSelector == "!all()" {
			kept = append(kept, about)
		} else {
			others = append(others, about)
		}
	}
	said := "for all Pods: " + strings.Join(others, ", ")
	if len(kept) == 0 {
		return warns(said+"; kept for BOSH: none", "keep a range for manual networks, so that no other Pod takes its addresses: docs/networks.md")
	}
	return ok(said + "; kept for BOSH: " + strings.Join(kept, ", "))
}
