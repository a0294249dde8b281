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

	"bosh-kubernetes-cpi/kube"
)

var serviceCIDRResource = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "servicecidrs"}

// inspectServiceRanges finds the ranges of Service addresses: from ServiceCIDRs, or if none can be read, from the API server's error
// about an address outside of the range.
func (c *Cluster) inspectServiceRanges(ctx context.Context, result *Inspection) (string, error) {
	all, err := c.dynamicClient.Resource(serviceCIDRResource).List(ctx, metav1.ListOptions{})
	if err == nil && len(all.Items) > 0 {
		var texts []string
		for _, object := range all.Items {
			cidrs, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "cidrs")
			result.addServiceRanges(cidrs)
			texts = append(texts, strings.Join(cidrs, " and ")+" (ServiceCIDR "+object.GetName()+")")
		}
		return strings.Join(texts, ", "), nil
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return "", err
	}
	rejection := c.dryRunService(ctx, "192.0.2.1") // an address of TEST-NET-1, which is not in use anywhere
	if rejection == nil {
		return "", errors.New("the API server accepts the Service address 192.0.2.1, and so does not report its range")
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

// dryRunService returns why a Service cannot have this address, by a dry run in the director's namespace. If that namespace does not
// exist yet or does not admit Services, it tries the namespace default.
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
	defaultClient, clientErr := kube.NewFor(c.config, metav1.NamespaceDefault, retryTimeout)
	if clientErr != nil {
		return clientErr
	}
	if otherErr := dryRun(defaultClient); otherErr == nil || apierrors.IsInvalid(otherErr) {
		return otherErr
	}
	return err
}

// FindFreeServiceAddress returns an address that a Service can have. It searches the lower band of the range, from which Kubernetes
// assigns addresses last (https://kubernetes.io/docs/concepts/services-networking/cluster-ip-allocation/), but not its first
// addresses, such as that of the cluster's DNS, which distributions choose.
func (c *Cluster) FindFreeServiceAddress(ctx context.Context, inspection *Inspection) (string, error) {
	if len(inspection.ServiceRanges) == 0 {
		return "", errors.New("cannot choose an address: the Service range of the cluster is unknown; give an address with --address")
	}
	allNamespaces, err := kube.NewFor(c.config, "", retryTimeout)
	if err != nil {
		return "", err
	}
	taken := map[string]bool{}
	services, err := allNamespaces.Services.List(ctx, kube.Selection{})
	if err != nil && !errors.Is(err, kube.ErrRefused) {
		return "", err
	}
	for _, service := range services.Items {
		taken[service.Spec.ClusterIP] = true
	}
	const first, last = 60, 250
	var lastErr error
	for offset := first; offset < last; offset++ {
		address := addressAt(inspection.ServiceRanges[0], offset)
		if !inspection.ServiceRanges[0].Contains(address) || taken[address.String()] {
			continue
		}
		if lastErr = c.dryRunService(ctx, address.String()); lastErr == nil {
			return address.String(), nil
		}
		if !apierrors.IsInvalid(lastErr) {
			break
		}
	}
	return "", fmt.Errorf("no free Service address found in %s: %w; give an address with --address",
		inspection.ServiceRanges[0], lastErr)
}

// addressAt returns the address at this offset of the range.
func addressAt(within netip.Prefix, offset int) netip.Addr {
	address := within.Masked().Addr()
	for range offset {
		address = address.Next()
	}
	return address
}

// AddressAt returns the address at this offset of the range, as text.
func (r ReservedRange) AddressAt(offset int) string { return addressAt(r.Prefix, offset).String() }

// FindFreePodAddress returns the first address of the range, from this offset on, that no Pod has.
func (c *Cluster) FindFreePodAddress(ctx context.Context, reserved ReservedRange, first int) (string, error) {
	const maxCandidates = 200
	for offset := first; offset < first+maxCandidates; offset++ {
		address := addressAt(reserved.Prefix, offset)
		if !reserved.Contains(address) {
			break
		}
		_, taken, err := c.Client.PodsInAllNamespaces().Find(ctx, kube.Selection{Fields: "status.podIP=" + address.String()},
			func(*corev1.Pod) bool { return true })
		if errors.Is(err, kube.ErrRefused) || err == nil && !taken {
			return address.String(), nil // without the right to list all Pods, create_vm reports a conflict
		}
		if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("no free Pod address found in %s from offset %d on; give an address with --address", reserved, first)
}
