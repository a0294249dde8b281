package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
)

var (
	serviceCIDRResource = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "servicecidrs"}
	ipAddressResource   = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ipaddresses"}
)

// inspectServiceRanges finds the ranges of Service addresses in the ServiceCIDRs: first those of the API server, which cannot be deleted.
func (c *Cluster) inspectServiceRanges(ctx context.Context, result *Inspection) (string, error) {
	serviceCIDRs, err := c.dynamicClient.Resource(serviceCIDRResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	var ranges []string
	for _, object := range serviceCIDRs.Items {
		cidrs, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "cidrs")
		position := len(result.ServiceRanges)
		if object.GetName() == "kubernetes" {
			position = 0
		}
		for _, cidr := range cidrs {
			if prefix, err := netip.ParsePrefix(cidr); err == nil {
				result.ServiceRanges = slices.Insert(result.ServiceRanges, position, prefix.Masked())
				position++
			}
		}
		ranges = append(ranges, strings.Join(cidrs, " and ")+" (ServiceCIDR "+object.GetName()+")")
	}
	if len(ranges) == 0 {
		return "", errors.New("the cluster has no ServiceCIDRs")
	}
	return strings.Join(ranges, ", "), nil
}

// FindFreeServiceAddress returns a free Service address. It searches the lower band of the range, from which Kubernetes assigns
// addresses last (https://kubernetes.io/docs/concepts/services-networking/cluster-ip-allocation/). It skips the first addresses, which
// distributions assign to well-known Services such as the cluster DNS. The IPAddresses are the addresses of all Services. If the user may
// not list them, create_vm reports a conflict later.
func (c *Cluster) FindFreeServiceAddress(ctx context.Context, inspection *Inspection) (string, error) {
	if len(inspection.ServiceRanges) == 0 {
		return "", errors.New("cannot choose an address: the Service range of the cluster is unknown; set --address")
	}
	existing, err := c.dynamicClient.Resource(ipAddressResource).List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsForbidden(err) {
		return "", err
	}
	taken := map[string]bool{}
	if err == nil {
		for _, address := range existing.Items {
			taken[address.GetName()] = true
		}
	}
	serviceRange := inspection.ServiceRanges[0]
	const firstOffset, lastOffset = 60, 250
	for offset := firstOffset; offset < lastOffset; offset++ {
		if address := AddressAt(serviceRange, offset); serviceRange.Contains(address) && !taken[address.String()] {
			return address.String(), nil
		}
	}
	return "", fmt.Errorf("no free Service address in %s; set --address", serviceRange)
}

// AddressAt returns the address at the given offset in the range.
func AddressAt(prefix netip.Prefix, offset int) netip.Addr {
	address := prefix.Masked().Addr()
	for range offset {
		address = address.Next()
	}
	return address
}

// FindFreePodAddress returns the first address of the range, at or after firstOffset, that no Pod has. It does not look for Pods if the
// user may not list all Pods: create_vm reports a conflict later.
func (c *Cluster) FindFreePodAddress(ctx context.Context, reserved network.AddressRange, firstOffset int) (string, error) {
	const maxCandidates = 200
	for offset := firstOffset; offset < firstOffset+maxCandidates; offset++ {
		address := AddressAt(reserved.Prefix, offset)
		if !reserved.Contains(address) {
			break
		}
		_, taken, err := c.Client.PodsInAllNamespaces().Find(ctx, kube.Selection{Fields: "status.podIP=" + address.String()},
			func(*corev1.Pod) bool { return true })
		if errors.Is(err, kube.ErrDenied) || err == nil && !taken {
			return address.String(), nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("no free Pod address in %s at or after offset %d; set --address", reserved, firstOffset)
}
