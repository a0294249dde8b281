package cluster

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
)

func (c *Cluster) inspectNetworkPlugin(ctx context.Context, result *Inspection) (_ string, err error) {
	result.NetworkPlugin, err = network.DetectPlugin(ctx, c.Client, func(ctx context.Context) ([]*corev1.Node, error) {
		nodes, err := c.Client.Nodes.List(ctx, kube.Selection{})
		return nodes.Items, err
	})
	if err != nil {
		return "", err
	}
	if result.NetworkPlugin.Name == "" {
		return "unknown: no DaemonSet, API group or node shows a known network plugin", nil
	}
	described := result.NetworkPlugin.Name + " (" + result.NetworkPlugin.DetectedBy + "), "
	if len(result.NetworkPlugin.Annotations) == 0 {
		return described + "does not assign requested addresses", nil
	}
	return described + "assigns requested addresses", nil
}

// inspectReservedRanges finds the reserved ranges of Calico that are large enough for a director and some VMs; see
// docs/guides/networks.md.
func (c *Cluster) inspectReservedRanges(ctx context.Context, result *Inspection) (string, error) {
	if result.NetworkPlugin.Name != network.Calico {
		return "unknown: detected only with " + network.Calico, nil
	}
	ofPools, _, err := network.IPPools(ctx, c.Client)
	if err != nil {
		return "", err
	}
	ofReservations, err := network.IPReservations(ctx, c.Client)
	if err != nil {
		return "", err
	}
	const maxPrefixLength = 27
	result.ReservedRanges = slices.DeleteFunc(append(ofPools, ofReservations...), func(r network.AddressRange) bool {
		return !r.Addr().Is4() || r.Bits() > maxPrefixLength
	})
	if len(result.ReservedRanges) == 0 {
		return "none: no IPPool with nodeSelector " + network.NoNodes + ", and no IPReservation", nil
	}
	return network.DescribeRanges(result.ReservedRanges), nil
}
