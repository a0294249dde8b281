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
		return fail("kubernetes.network.address_annotations is empty",
			"add the annotation of your network plugin, or use dynamic networks; VMs on manual networks get other addresses and fail")
	}
	message := "requested by " + strings.Join(requested, ", ")
	const see = "for static addresses see docs/guides/networks.md: "
	plugin, err := network.DetectPlugin(ctx, s.client, s.nodes)
	if plugin.Name == "" {
		if err != nil {
			message += "; " + err.Error()
		}
		return undetermined(message+"; cannot determine the network plugin", see+"the annotation of your plugin, or the CNI shim")
	}
	message += "; the network plugin is " + plugin.Name + " (" + plugin.DetectedBy + "), which reads "
	if read := plugin.AnnotationNames(); len(read) > 0 {
		message += strings.Join(read, " and ")
		if slices.ContainsFunc(read, func(name string) bool { return !slices.Contains(requested, name) }) {
			return fail(message, "add it to kubernetes.network.address_annotations")
		}
		return pass(message)
	}
	message += "no annotation"
	if slices.Contains(requested, manifest.AnnotationRequestedAddresses) {
		return warn(message, see+"install the CNI shim, or use dynamic networks")
	}
	return fail(message,
		see+"install the CNI shim and add "+manifest.AnnotationRequestedAddresses+" to kubernetes.network.address_annotations, or use "+
			"dynamic networks")
}

// inspectAddressPools lists the ranges of Calico's IPPools and IPReservations.
func inspectAddressPools(ctx context.Context, s *clusterState) finding {
	reserved, others, err := network.IPPools(ctx, s.client)
	if errors.Is(err, kube.ErrNotServed) {
		return pass("the cluster does not have Calico")
	}
	if err != nil {
		return errorFinding(err, checkPermissionsFile)
	}
	ofReservations, err := network.IPReservations(ctx, s.client)
	if err != nil {
		return errorFinding(err, checkPermissionsFile)
	}
	reserved = append(reserved, ofReservations...)
	message := "for all Pods: " + network.DescribeRanges(others)
	if len(reserved) == 0 {
		return warn(message+"; reserved ranges: none",
			"create a reserved range for manual networks, so that other Pods are not assigned its addresses: docs/guides/networks.md")
	}
	return pass(message + "; reserved ranges: " + network.DescribeRanges(reserved))
}
