package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/extension"
)

// NetworkPlugin is the network plugin of a cluster. Its name is empty if the plugin is unknown.
type NetworkPlugin struct {
	network.Plugin
	DetectedBy string // the object that identifies the plugin
}

func (c *Cluster) inspectNetworkPlugin(ctx context.Context, result *Inspection) (string, error) {
	detectors := []func(context.Context) (NetworkPlugin, error){c.detectByDaemonSet, c.detectByAPIGroup, c.detectByNodes}
	var failures []error
	for _, detect := range detectors {
		var err error
		if result.NetworkPlugin, err = detect(ctx); err != nil {
			failures = append(failures, err)
		}
		if result.NetworkPlugin.Name == "" {
			continue
		}
		if len(result.NetworkPlugin.Annotations) == 0 {
			return fmt.Sprintf("%s (%s), does not assign requested addresses", result.NetworkPlugin.Name, result.NetworkPlugin.DetectedBy), nil
		}
		return fmt.Sprintf("%s (%s), assigns requested addresses", result.NetworkPlugin.Name, result.NetworkPlugin.DetectedBy), nil
	}
	if err := errors.Join(failures...); err != nil {
		return "", err
	}
	return "unknown: no DaemonSet, API group or node shows a known network plugin", nil
}

var daemonSetResource = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}

func (c *Cluster) detectByDaemonSet(ctx context.Context) (NetworkPlugin, error) {
	daemonSets, err := c.dynamicClient.Resource(daemonSetResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return NetworkPlugin{}, err
	}
	existing := objectNames(daemonSets)
	for _, known := range network.Plugins() {
		for _, name := range known.DaemonSets {
			if slices.Contains(existing, name) {
				return NetworkPlugin{known, "DaemonSet " + name}, nil
			}
		}
	}
	return NetworkPlugin{}, nil
}

func (c *Cluster) detectByAPIGroup(context.Context) (NetworkPlugin, error) {
	list, err := c.discoveryClient.ServerGroups()
	if err != nil {
		return NetworkPlugin{}, err
	}
	for _, known := range network.Plugins() {
		if known.APIGroup != "" && slices.ContainsFunc(list.Groups, func(group metav1.APIGroup) bool { return group.Name == known.APIGroup }) {
			return NetworkPlugin{known, "API group " + known.APIGroup}, nil
		}
	}
	return NetworkPlugin{}, nil
}

func (c *Cluster) detectByNodes(ctx context.Context) (NetworkPlugin, error) {
	nodes, err := c.Client.Nodes.List(ctx, kube.Selection{})
	if err != nil {
		return NetworkPlugin{}, err
	}
	plugin := network.PluginOfNodes(nodes.Items)
	if plugin == nil {
		return NetworkPlugin{}, nil
	}
	return NetworkPlugin{*plugin, "annotations or labels of nodes"}, nil
}

// inspectReservedRanges finds the reserved ranges of Calico; see docs/guides/networks.md.
func (c *Cluster) inspectReservedRanges(ctx context.Context, result *Inspection) (string, error) {
	if result.NetworkPlugin.Name != network.Calico {
		return "unknown: detected only with " + network.Calico, nil
	}
	if err := c.addIPPools(ctx, result); err != nil {
		return "", err
	}
	if err := c.addIPReservations(ctx, result); err != nil {
		return "", err
	}
	if len(result.ReservedRanges) == 0 {
		return "none: no IPPool with nodeSelector " + extension.NoNodes + ", and no IPReservation", nil
	}
	var ranges []string
	for _, reserved := range result.ReservedRanges {
		ranges = append(ranges, reserved.String()+" ("+reserved.Source+")")
	}
	return strings.Join(ranges, ", "), nil
}

func (c *Cluster) addIPPools(ctx context.Context, result *Inspection) error {
	client, err := c.Client.IPPools()
	if err != nil {
		return err
	}
	pools, err := client.List(ctx, kube.Selection{})
	if err != nil {
		return err
	}
	for _, pool := range pools.Items {
		if pool.IsReserved() {
			result.addReservedRange(pool.Spec.CIDR, "IPPool "+pool.Name)
		}
	}
	return nil
}

func (c *Cluster) addIPReservations(ctx context.Context, result *Inspection) error {
	client, err := c.Client.IPReservations()
	if err != nil {
		return err
	}
	reservations, err := client.List(ctx, kube.Selection{})
	if errors.Is(err, kube.ErrNotServed) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, reservation := range reservations.Items {
		for _, reservedCIDR := range reservation.Spec.ReservedCIDRs {
			result.addReservedRange(reservedCIDR, "IPReservation "+reservation.Name)
		}
	}
	return nil
}

// addReservedRange adds an IPv4 range if it is large enough for a director and some VMs.
func (i *Inspection) addReservedRange(cidr, source string) {
	const maxPrefixLength = 27
	if prefix, err := netip.ParsePrefix(cidr); err == nil && prefix.Addr().Is4() && prefix.Bits() <= maxPrefixLength {
		i.ReservedRanges = append(i.ReservedRanges, ReservedRange{prefix.Masked(), source})
	}
}
