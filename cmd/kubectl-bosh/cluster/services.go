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

var serviceCIDRs = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "servicecidrs"}

// lookAtServices looks for the ranges of Services' addresses: by the objects that hold them, and where there are none to
// read, by what the API server says of an address outside of them.
func (c *Cluster) lookAtServices(ctx context.Context, f *Found) (string, error) {
	all, err := c.objects.Resource(serviceCIDRs).List(ctx, metav1.ListOptions{})
	if err == nil && len(all.Items) > 0 {
		var said []string
		for _, each := range all.Items {
			cidrs, _, _ := unstructured.NestedStringSlice(each.Object, "spec", "cidrs")
			f.addRanges(cidrs)
			said = append(said, strings.Join(cidrs, " and ")+" (ServiceCIDR "+each.GetName()+")")
		}
		return strings.Join(said, ", "), nil
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return "", err
	}
	refused := c.tryService(ctx, "192.0.2.1") // of TEST-NET-1, which is nobody's
	if refused == nil {
		return "", errors.New("the API server takes 192.0.2.1 for a Service's address: its range is not told")
	}
	f.addRanges(cidr.FindAllString(refused.Error(), -1))
	if len(f.Services) == 0 {
		return "", refused
	}
	return f.Services[0].String() + " (told by the API server)", nil
}

var cidr = regexp.MustCompile(`[0-9a-fA-F.:]+/\d+`)

func (f *Found) addRanges(cidrs []string) {
	for _, each := range cidrs {
		if prefix, err := netip.ParsePrefix(each); err == nil {
			f.Services = append(f.Services, prefix.Masked())
		}
	}
}

// tryService says why no Service can have this address. Nothing is stored. It asks in the director's namespace, and in another one
// where that does not exist yet, or does not take a Service at all.
func (c *Cluster) tryService(ctx context.Context, address string) error {
	try := func(client *kube.Client) error {
		_, err := client.Services.DryRunCreate(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "bosh-director-probe"},
			Spec:       corev1.ServiceSpec{ClusterIP: address, Ports: []corev1.ServicePort{{Port: 25555}}},
		})
		return err
	}
	err := try(c.Client)
	if err == nil || apierrors.IsInvalid(err) {
		return err
	}
	elsewhere, failed := kube.NewFor(c.config, metav1.NamespaceDefault, patience)
	if failed != nil {
		return failed
	}
	if other := try(elsewhere); other == nil || apierrors.IsInvalid(other) {
		return other
	}
	return err
}

// FreeServiceAddress is an address that a Service can have. The first of a range are left to those that choose theirs:
// https://kubernetes.io/docs/concepts/services-networking/cluster-ip-allocation/.
func (c *Cluster) FreeServiceAddress(ctx context.Context, f *Found) (string, error) {
	if len(f.Services) == 0 {
		return "", errors.New("which addresses Services can have could not be found out: choose one of their range with --address")
	}
	all, err := kube.NewFor(c.config, "", patience)
	if err != nil {
		return "", err
	}
	taken := map[string]bool{}
	services, err := all.Services.List(ctx, kube.Selection{})
	if err != nil && !errors.Is(err, kube.ErrRefused) {
		return "", err
	}
	for _, service := range services.Items {
		taken[service.Spec.ClusterIP] = true
	}
	const first, last = 60, 250
	var why error
	for offset := first; offset < last; offset++ {
		address := nth(f.Services[0], offset)
		if !f.Services[0].Contains(address) || taken[address.String()] {
			continue
		}
		if why = c.tryService(ctx, address.String()); why == nil {
			return address.String(), nil
		}
		if !apierrors.IsInvalid(why) {
			break
		}
	}
	return "", fmt.Errorf("no free address for a Service was found in %s, choose one with --address (%w)", f.Services[0], why)
}

// nth is the address of the range at this offset.
func nth(of netip.Prefix, offset int) netip.Addr {
	address := of.Masked().Addr()
	for range offset {
		address = address.Next()
	}
	return address
}

// Nth is the address of the range at this offset, as text.
func (r Range) Nth(offset int) string { return nth(r.Prefix, offset).String() }

// FreePodAddress is the first address of the range, from this offset on, that no Pod has.
func (c *Cluster) FreePodAddress(ctx context.Context, of Range, first int) (string, error) {
	const many = 200
	for offset := first; offset < first+many; offset++ {
		address := nth(of.Prefix, offset)
		if !of.Contains(address) {
			break
		}
		_, taken, err := c.Client.PodsInAllNamespaces().Find(ctx, kube.Selection{Fields: "status.podIP=" + address.String()},
			func(*corev1.Pod) bool { return true })
		if errors.Is(err, kube.ErrRefused) || err == nil && !taken {
			return address.String(), nil // who may not see all Pods is told by create_vm
		}
		if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("every address of %s from the %dth on is a Pod's: choose one with --address", of, first)
}
