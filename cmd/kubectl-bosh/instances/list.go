package instances

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Filter selects instances. An empty field selects all.
type Filter struct {
	Director   string // name or UUID
	Deployment string
}

func (f Filter) matches(i Instance) bool {
	return (f.Director == "" || f.Director == i.Director || f.Director == i.DirectorUUID) &&
		(f.Deployment == "" || f.Deployment == i.Deployment)
}

// managedByCPI selects all objects of the CPI in the namespace.
var managedByCPI = kube.Selection{Labels: manifest.ManagedSelector}

// List returns the selected instances with their disks and Services, sorted by namespace, director, deployment, group
// and index.
func List(ctx context.Context, client *kube.Client, filter Filter) ([]Instance, error) {
	vms, err := listVMs(ctx, client, filter)
	if err != nil {
		return nil, err
	}
	pvcs, err := client.PVCs.List(ctx, managedByCPI)
	if err != nil {
		return nil, err
	}
	services, err := client.Services.List(ctx, kube.Selection{})
	if err != nil {
		return nil, err
	}
	for i := range vms.instances {
		instance := &vms.instances[i]
		instance.Disks = disksOf(instance.vmPod, vms.pods, pvcs.Items)
		for _, service := range services.Items {
			if selects(service, instance.vmPod) {
				instance.Services = append(instance.Services, service.Name)
			}
		}
	}
	return vms.instances, nil
}

// Find returns the instance with this name, which is GROUP/INDEX, GROUP/ID, ID, or the name of the Pod.
func Find(ctx context.Context, client *kube.Client, filter Filter, name string) (Instance, error) {
	vms, err := listVMs(ctx, client, filter)
	if err != nil {
		return Instance{}, err
	}
	found := slices.DeleteFunc(vms.instances, func(instance Instance) bool { return !instance.matches(name) })
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Instance{}, fmt.Errorf("instance %q not found in namespace %s; `kubectl bosh ps` lists the instances", name, client.Namespace)
	}
	var candidates []string
	for _, instance := range found {
		candidates = append(candidates, fmt.Sprintf("%s (deployment %s, director %s)", instance.Pod, instance.Deployment,
			cmp.Or(instance.Director, instance.DirectorUUID)))
	}
	return Instance{}, fmt.Errorf("instance %q is ambiguous: %s; set --deployment or --director, or use the name of the Pod",
		name, strings.Join(candidates, ", "))
}

type vmList struct {
	instances []Instance
	pods      []*corev1.Pod // including attachment Pods
}

// listVMs returns the selected instances without disks and Services, and all Pods of the CPI.
func listVMs(ctx context.Context, client *kube.Client, filter Filter) (vmList, error) {
	pods, err := client.Pods.List(ctx, managedByCPI)
	if err != nil {
		return vmList{}, err
	}
	vms := vmList{pods: pods.Items}
	for _, vmPod := range manifest.VMPods(pods.Items) {
		if instance := newInstance(vmPod); filter.matches(instance) {
			vms.instances = append(vms.instances, instance)
		}
	}
	slices.SortFunc(vms.instances, func(a, b Instance) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Director, b.Director), cmp.Compare(a.Deployment, b.Deployment),
			cmp.Compare(a.Group, b.Group), cmp.Compare(indexNumber(a.Index), indexNumber(b.Index)), cmp.Compare(a.Pod, b.Pod))
	})
	return vms, nil
}

func indexNumber(index string) int {
	n, _ := strconv.Atoi(index)
	return n
}

func selects(service *corev1.Service, vmPod manifest.VMPod) bool {
	return service.Namespace == vmPod.Namespace && len(service.Spec.Selector) > 0 &&
		labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(vmPod.Labels))
}
