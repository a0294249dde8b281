package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
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

// inspectServiceRanges finds the ranges of Service addresses in the ServiceCIDRs. If it cannot read any, it finds the range in the API
// server's error about an address outside of the range.
func (c *Cluster) inspectServiceRanges(ctx context.Context, result *Inspection) (string, error) {
	serviceCIDRs, err := c.dynamicClient.Resource(serviceCIDRResource).List(ctx, metav1.ListOptions{})
	if err == nil && len(serviceCIDRs.Items) > 0 {
		var ranges []string
		for _, object := range serviceCIDRs.Items {
			cidrs, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "cidrs")
			result.addServiceRanges(cidrs)
			ranges = append(ranges, strings.Join(cidrs, " and ")+" (ServiceCIDR "+object.GetName()+")")
		}
		return strings.Join(ranges, ", "), nil
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return "", err
	}
	rejection := c.dryRunService(ctx, "192.0.2.1") // TEST-NET-1, reserved for documentation
	if rejection == nil {
		return "", errors.New("cannot determine the Service range: the API server accepted 192.0.2.1 instead of reporting the range")
	}
	result.addServiceRanges(cidrPattern.FindAllString(rejection.Error(), -1))
	if len(result.ServiceRanges) == 0 {
		return "", rejection
	}
	return result.ServiceRanges[0].String() + " (reported by the API server)", nil
}

var cidrPattern = regexp.MustCompile(`[0-9a-fA-F.:]+/\d+`)

func (i *Inspection) addServiceRanges(cidrs []string) {
	for _, cidr := range cidrs {
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			i.ServiceRanges = append(i.ServiceRanges, prefix.Masked())
		}
	}
}

// dryRunService dry-runs the creation of a Service with the address. It returns the API server's error, or nil if the address is in the
// range. It falls back to the default namespace if the director's namespace does not exist or does not admit Services.
func (c *Cluster) dryRunService(ctx context.Context, address string) error {
	dryRun := func(client *kube.Client) error {
		_, err := client.Services.DryRunCreate(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "bosh-director-probe"},
			Spec:       corev1.ServiceSpec{ClusterIP: address, Ports: []corev1.ServicePort{{Port: 25555}}},
		})
		return err
	}
	err := dryRun(c.Client)
	if err == nil || apierrors.IsInvalid(err) {
		return err
	}
	defaultClient, clientErr := kube.NewForConfig(c.config, metav1.NamespaceDefault, retryTimeout)
	if clientErr != nil {
		return clientErr
	}
	if otherErr := dryRun(defaultClient); otherErr == nil || apierrors.IsInvalid(otherErr) {
		return otherErr
	}
	return err
}

// FindFreeServiceAddress returns a free Service address. It searches the lower band of the range, from which Kubernetes assigns
// addresses last (https://kubernetes.io/docs/concepts/services-networking/cluster-ip-allocation/). It skips the first addresses, which
// distributions assign to well-known Services such as the cluster DNS. Because a dry run also accepts an address that is in use, it lists
// the IPAddresses, which are the addresses of all Services. If the user may not list them, create_vm reports a conflict later.
func (c *Cluster) FindFreeServiceAddress(ctx context.Context, inspection *Inspection) (string, error) {
	if len(inspection.ServiceRanges) == 0 {
		return "", errors.New("cannot choose an address: the Service range of the cluster is unknown; set --address")
	}
	existing, err := c.dynamicClient.Resource(ipAddressResource).List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
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
	var lastErr error
	for offset := firstOffset; offset < lastOffset; offset++ {
		address := AddressAt(serviceRange, offset)
		if !serviceRange.Contains(address) || taken[address.String()] {
			continue
		}
		if lastErr = c.dryRunService(ctx, address.String()); lastErr == nil {
			return address.String(), nil
		}
		if !apierrors.IsInvalid(lastErr) {
			break
		}
	}
	if lastErr != nil {
		return "", fmt.Errorf("no free Service address in %s: %w; set --address", serviceRange, lastErr)
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
