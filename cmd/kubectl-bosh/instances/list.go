package instances

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Filter says which instances are meant; what is "" leaves out none.
type Filter struct {
	Director   string // name or UUID
	Deployment string
}

func (f Filter) takes(i Instance) bool {
	return (f.Director == "" || f.Director == i.Director || f.Director == i.DirectorUUID) &&
		(f.Deployment == "" || f.Deployment == i.Deployment)
}

// ours selects all of the CPI's objects in the namespace.
var ours = kube.Selection{Labels: manifest.LabelManagedBy + "=" + manifest.ManagedBy}

// List returns the instances with their disks and Services, sorted by director, deployment, group and index.
func List(ctx context.Context, client *kube.Client, filter Filter) ([]Instance, error) {
	all, err := machines(ctx, client, filter)
	if err != nil {
		return nil, err
	}
	claims, err := client.PVCs.List(ctx, ours)
	if err != nil {
		return nil, err
	}
	services, err := client.Services.List(ctx, kube.Selection{})
	if err != nil {
		return nil, err
	}
	for i := range all.instances {
		instance := &all.instances[i]
		instance.Disks = disks(instance.Pod, all.pods, claims.Items)
		for _, service := range services.Items {
			if selects(service, instance.pod) {
				instance.Services = append(instance.Services, service.Name)
			}
		}
	}
	return all.instances, nil
}

// Find returns the one instance of this name, which is GROUP/INDEX, GROUP/ID, ID, or the Pod's.
func Find(ctx context.Context, client *kube.Client, filter Filter, name string) (Instance, error) {
	all, err := machines(ctx, client, filter)
	if err != nil {
		return Instance{}, err
	}
	var found []Instance
	for _, instance := range all.instances {
		if instance.is(name) {
			found = append(found, instance)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Instance{}, fmt.Errorf("no instance %q in namespace %s: `kubectl bosh ps` lists those that are there", name, client.Namespace)
	}
	var which []string
	for _, instance := range found {
		which = append(which, fmt.Sprintf("%s (deployment %s, director %s)", instance.Pod, instance.Deployment,
			cmp.Or(instance.Director, instance.DirectorUUID)))
	}
	return Instance{}, fmt.Errorf("%q are several: %s. Give --deployment or --director, or the Pod's name", name, strings.Join(which, ", "))
}

type machineList struct {
	instances []Instance
	pods      []*corev1.Pod // attachments, too
}

// machines are the instances without what other kinds of objects tell of them.
func machines(ctx context.Context, client *kube.Client, filter Filter) (machineList, error) {
	pods, err := client.Pods.List(ctx, ours)
	if err != nil {
		return machineList{}, err
	}
	all := machineList{pods: pods.Items}
	for _, pod := range kube.PodsWithLabel(pods.Items, manifest.LabelRole, manifest.RoleVM) {
		if instance := newInstance(pod); filter.takes(instance) {
			all.instances = append(all.instances, instance)
		}
	}
	slices.SortFunc(all.instances, func(a, b Instance) int {
		return cmp.Or(cmp.Compare(a.Director, b.Director), cmp.Compare(a.Deployment, b.Deployment),
			cmp.Compare(a.Group, b.Group), cmp.Compare(number(a.Index), number(b.Index)), cmp.Compare(a.Pod, b.Pod))
	})
	return all, nil
}

func number(index string) int {
	n, _ := strconv.Atoi(index)
	return n
}

// disks are those that the machine uses, or is to use: their claims say so.
func disks(vm string, pods []*corev1.Pod, claims []*corev1.PersistentVolumeClaim) []Disk {
	var found []Disk
	for _, claim := range claims {
		role := claim.Labels[manifest.LabelRole]
		attachment := attachmentOf(claim.Name, pods)
		if role != manifest.RoleDisk || claim.Labels[manifest.LabelVM] != vm && (attachment == nil || attachment.Labels[manifest.LabelVM] != vm) {
			continue
		}
		disk := Disk{CID: claim.Name, Size: size(claim), State: "Unattached"}
		if claim.Spec.StorageClassName != nil {
			disk.Class = *claim.Spec.StorageClassName
		}
		if attachment != nil {
			disk.Attachment, disk.Node, disk.State = attachment.Name, attachment.Spec.NodeName, attached(attachment)
		}
		found = append(found, disk)
	}
	return found
}

// attached is the state of a disk that has this attachment.
func attached(attachment *corev1.Pod) string {
	switch {
	case attachment.DeletionTimestamp != nil:
		return "Detaching"
	case kube.Ready(attachment) && kube.IsActive(attachment):
		return "Attached"
	}
	return "Attaching"
}

// size is the disk's, as BOSH asked for it; its volume may be larger.
func size(claim *corev1.PersistentVolumeClaim) string {
	if mib, err := strconv.ParseInt(claim.Annotations[manifest.AnnotationSize], 10, 64); err == nil {
		return resource.NewQuantity(mib<<20, resource.BinarySI).String()
	}
	return claim.Spec.Resources.Requests.Storage().String()
}

func attachmentOf(disk string, pods []*corev1.Pod) *corev1.Pod {
	name := manifest.AttachmentName(disk)
	if i := slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return pod.Name == name }); i >= 0 {
		return pods[i]
	}
	return nil
}

func selects(service *corev1.Service, pod *corev1.Pod) bool {
	return len(service.Spec.Selector) > 0 && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels))
}
