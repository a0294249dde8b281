package network

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
)

// DetectedPlugin is the network plugin of a cluster. Its name is empty if the plugin is unknown.
type DetectedPlugin struct {
	Plugin
	DetectedBy string // the object that identifies the plugin
}

// DetectPlugin finds the network plugin of a cluster by its DaemonSets, the plugin's keys on nodes, its API groups, and last the keys of
// clouds on nodes, because a cluster in a cloud can have another plugin. It returns an error only if it finds no plugin and some of these
// objects could not be read.
func DetectPlugin(
	ctx context.Context, client *kube.Client, listNodes func(context.Context) ([]*corev1.Node, error),
) (DetectedPlugin, error) {

	daemonSets, daemonSetsErr := daemonSetNames(ctx, client)
	if detected, ok := findPlugin("DaemonSet ", func(p Plugin) string { return firstShared(p.DaemonSets, daemonSets) }); ok {
		return detected, nil
	}
	nodes, nodesErr := listNodes(ctx)
	const byNodes = "annotations or labels of nodes"
	ofNodes := func(ofCloud bool) func(Plugin) string {
		return func(p Plugin) string {
			if p.NodeKey != "" && p.NodeKeyOfCloud == ofCloud && slices.ContainsFunc(nodes, p.marks) {
				return byNodes
			}
			return ""
		}
	}
	if detected, ok := findPlugin("", ofNodes(false)); ok {
		return detected, nil
	}
	groups, groupsErr := client.ListAPIGroups(ctx)
	if detected, ok := findPlugin("API group ", func(p Plugin) string { return firstShared([]string{p.APIGroup}, groups) }); ok {
		return detected, nil
	}
	if detected, ok := findPlugin("", ofNodes(true)); ok {
		return detected, nil
	}
	return DetectedPlugin{}, errors.Join(daemonSetsErr, nodesErr, groupsErr)
}

// findPlugin returns the first known plugin for which identify returns the object that identifies it.
func findPlugin(kind string, identify func(Plugin) string) (DetectedPlugin, bool) {
	for _, known := range Plugins() {
		if name := identify(known); name != "" {
			return DetectedPlugin{known, kind + name}, true
		}
	}
	return DetectedPlugin{}, false
}

// firstShared returns the first of names that others contains, or "".
func firstShared(names, others []string) string {
	if i := slices.IndexFunc(names, func(name string) bool { return slices.Contains(others, name) }); i >= 0 {
		return names[i]
	}
	return ""
}

func daemonSetNames(ctx context.Context, client *kube.Client) ([]string, error) {
	found, err := client.DaemonSetsInAllNamespaces().List(ctx, kube.Selection{})
	names := make([]string, 0, len(found.Items))
	for _, daemonSet := range found.Items {
		names = append(names, daemonSet.Name)
	}
	return names, err
}

// AddressRange is a range of addresses, and the object that defines it.
type AddressRange struct {
	netip.Prefix
	Source string
}

func appendRange(ranges []AddressRange, cidr, source string) []AddressRange {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return ranges
	}
	return append(ranges, AddressRange{prefix.Masked(), source})
}

// DescribeRanges lists ranges with the objects that define them.
func DescribeRanges(ranges []AddressRange) string {
	var described []string
	for _, r := range ranges {
		described = append(described, r.String()+" ("+r.Source+")")
	}
	return strings.Join(described, ", ")
}
