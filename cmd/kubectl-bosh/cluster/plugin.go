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

	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/kube"
)

// Plugin is a network plugin.
type Plugin struct {
	Name string // "" is none that is known
	// Annotation is the one of a Pod by which the plugin gives it an address; "" where it gives none on request.
	Annotation string
	Sign       string // by what it was seen
}

// plugins are those that can be told apart, by their DaemonSets and by the API groups that they bring. The first that fits
// is the one: Calico may do the policies of another, and Cilium may be chained behind Kube-OVN.
var plugins = []struct {
	name       string
	daemonSets []string
	group      string
	annotation string
}{
	{"the plugin of EKS", []string{"aws-node"}, "", ""},
	{"the plugin of AKS", []string{"azure-cns", "azure-ip-masq-agent"}, "", ""},
	{"the plugin of GKE", []string{"anetd", "netd"}, "", ""},
	{"flannel", []string{"kube-flannel-ds", "kube-flannel", "canal", "rke2-canal"}, "", ""},
	{"kindnet", []string{"kindnet"}, "", ""},
	{"OVN-Kubernetes", []string{"ovnkube-node"}, "k8s.ovn.org", ""},
	{"Kube-OVN", []string{"kube-ovn-cni"}, "kubeovn.io", "ovn.kubernetes.io/ip_address"},
	{"Cilium", []string{"cilium"}, "cilium.io", ""},
	{"Antrea", []string{"antrea-agent"}, "crd.antrea.io", ""},
	{"kube-router", []string{"kube-router"}, "", ""},
	{"Weave Net", []string{"weave-net"}, "", ""},
	{Calico, []string{"calico-node"}, "crd.projectcalico.org", "cni.projectcalico.org/ipAddrs"},
}

// Calico is the name of the one plugin whose annotation the CPI knows by itself.
const Calico = "Calico"

func (c *Cluster) lookAtPlugin(ctx context.Context, f *Found) (string, error) {
	sought := []func(context.Context) (Plugin, error){c.ofDaemonSets, c.ofGroups, c.ofNodes}
	var failures []error
	for _, seek := range sought {
		var err error
		if f.Plugin, err = seek(ctx); err != nil {
			failures = append(failures, err)
		}
		if f.Plugin.Name == "" {
			continue
		}
		if f.Plugin.Annotation == "" {
			return fmt.Sprintf("%s (%s), which gives no address on request", f.Plugin.Name, f.Plugin.Sign), nil
		}
		return fmt.Sprintf("%s (%s), which gives addresses on request", f.Plugin.Name, f.Plugin.Sign), nil
	}
	if err := errors.Join(failures...); err != nil {
		return "", err
	}
	return "none that is known by its DaemonSets, API groups or nodes", nil
}

var daemonSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}

func (c *Cluster) ofDaemonSets(ctx context.Context) (Plugin, error) {
	all, err := c.objects.Resource(daemonSets).List(ctx, metav1.ListOptions{})
	if err != nil {
		return Plugin{}, err
	}
	there := names(all)
	for _, known := range plugins {
		for _, name := range known.daemonSets {
			if slices.Contains(there, name) {
				return Plugin{known.name, known.annotation, "DaemonSet " + name}, nil
			}
		}
	}
	return Plugin{}, nil
}

func (c *Cluster) ofGroups(context.Context) (Plugin, error) {
	all, err := c.groups.ServerGroups()
	if err != nil {
		return Plugin{}, err
	}
	for _, known := range plugins {
		if known.group != "" && slices.ContainsFunc(all.Groups, func(group metav1.APIGroup) bool { return group.Name == known.group }) {
			return Plugin{known.name, known.annotation, "API group " + known.group}, nil
		}
	}
	return Plugin{}, nil
}

func (c *Cluster) ofNodes(ctx context.Context) (Plugin, error) {
	nodes, err := c.Client.Nodes.List(ctx, kube.Selection{})
	if err != nil {
		return Plugin{}, err
	}
	name, annotation := preflight.DiscoverNetworkPlugin(nodes.Items)
	return Plugin{name, annotation, "what it writes on nodes"}, nil
}

// lookAtKept looks for Calico's ranges of which no Pod gets an address that does not ask: docs/networks.md.
func (c *Cluster) lookAtKept(ctx context.Context, f *Found) (string, error) {
	if f.Plugin.Name != Calico {
		return "only looked for with " + Calico, nil
	}
	if err := c.findPools(ctx, f); err != nil {
		return "", err
	}
	if err := c.findReservations(ctx, f); err != nil {
		return "", err
	}
	if len(f.Kept) == 0 {
		return "none: no IPPool that no node selects, and no IPReservation", nil
	}
	var said []string
	for _, each := range f.Kept {
		said = append(said, each.String()+" ("+each.By+")")
	}
	return strings.Join(said, ", "), nil
}

func (c *Cluster) findPools(ctx context.Context, f *Found) error {
	client, err := c.Client.IPPools()
	if err != nil {
		return err
	}
	pools, err := client.List(ctx, kube.Selection{})
	if err != nil {
		return err
	}
	for _, pool := range pools.Items {
		if pool.Spec.NodeSelector == "!all()" {
			f.keep(pool.Spec.CIDR, "IPPool "+pool.Name)
		}
	}
	return nil
}

func (c *Cluster) findReservations(ctx context.Context, f *Found) error {
	client, err := c.Client.IPReservations()
	if err != nil {
		return err
	}
	reservations, err := client.List(ctx, kube.Selection{})
	if errors.Is(err, kube.ErrNotServed) {
		return nil
	}
	for _, reservation := range reservations.Items {
		for _, each := range reservation.Spec.ReservedCIDRs {
			f.keep(each, "IPReservation "+reservation.Name)
		}
	}
	return err
}

// keep notes a range of IPv4, if a director and some machines have room in it.
func (f *Found) keep(cidr, by string) {
	const widest = 27
	if prefix, err := netip.ParsePrefix(cidr); err == nil && prefix.Addr().Is4() && prefix.Bits() <= widest {
		f.Kept = append(f.Kept, Range{prefix.Masked(), by})
	}
}
