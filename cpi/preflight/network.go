package preflight

import (
	"context"
	"errors"
	"slices"
	"strings"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
)

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
	message := "requested by " + strings.Join(requested, ", ")
	const see = "for static addresses see docs/guides/networks.md: "
	plugin := network.PluginOfNodes(nodes)
	if plugin == nil {
		return undetermined(message+"; cannot determine the network plugin", see+"the annotation of your plugin, or the CNI shim")
	}
	message += "; the nodes have " + plugin.Name + ", which reads "
	if read := plugin.AnnotationNames(); len(read) > 0 {
		message += strings.Join(read, " and ")
		if slices.ContainsFunc(read, func(name string) bool { return !slices.Contains(requested, name) }) {
			return fail(message, "add it to network.address_annotations")
		}
		return pass(message)
	}
	message += "no annotation"
	if slices.Contains(requested, manifest.AnnotationRequestedAddresses) {
		return warn(message, see+"install the CNI shim, or use dynamic networks")
	}
	return fail(message,
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
		if pool.IsReserved() {
			reserved = append(reserved, description)
		} else {
			others = append(others, description)
		}
	}
	message := "for all Pods: " + strings.Join(others, ", ")
	if len(reserved) == 0 {
		return warn(message+"; reserved ranges: none",
			"create a reserved range for manual networks, so that other Pods are not assigned its addresses: docs/guides/networks.md")
	}
	return pass(message + "; reserved ranges: " + strings.Join(reserved, ", "))
}
