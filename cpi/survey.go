package cpi

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/extension"
	"bosh-kubernetes-cpi/kube/manifest"
)

// survey is all that a director has in the namespace, but for its disks.
type survey struct {
	pods     []*corev1.Pod
	services []*corev1.Service
	budgets  []*policyv1.PodDisruptionBudget
	// templates are those of machines that are made again for each disk
	templates []*corev1.PodTemplate
	copies    []*corev1.PersistentVolumeClaim // for disks that update_disk copies, as long as they are not proven
	used      []*corev1.PersistentVolumeClaim // disks that have an owner
	// unfinished are snapshots that no call has answered with
	unfinished []*extension.VolumeSnapshot
	// prefetching have nodes keep stemcells' images, where that is not wanted any more
	prefetching []*extension.DaemonSet
}

// survey lists the Pods after what is there for them, which was made after them; and likewise what the
// Pods themselves were made from.
func (c Collector) survey(ctx context.Context, cluster *kube.Client) (survey, error) {
	which := kube.Selection{Labels: manifest.OfDirector(c.Director)}
	services, err := cluster.Services.List(ctx, which)
	if err != nil {
		return survey{}, err
	}
	client, err := cluster.Budgets()
	if err != nil {
		return survey{}, err
	}
	budgets, err := client.List(ctx, which)
	if err != nil {
		return survey{}, err
	}
	copies, err := cluster.Claims.List(ctx, kube.Selection{Labels: which.Labels + "," + manifest.LabelCopy + "=" + manifest.CopyUnproven})
	if err != nil {
		return survey{}, err
	}
	disks, err := cluster.Claims.List(ctx, kube.Selection{Labels: which.Labels + "," + manifest.LabelRole + "=" + manifest.RoleDisk})
	if err != nil {
		return survey{}, err
	}
	used := slices.DeleteFunc(disks.Items, func(pvc *corev1.PersistentVolumeClaim) bool {
		owner, _ := manifest.DiskOwnerOf(pvc)
		return owner == manifest.DiskOwner{}
	})
	unfinished, err := unfinishedSnapshots(ctx, cluster, which.Labels)
	if err != nil {
		return survey{}, err
	}
	prefetching, err := c.prefetching(ctx, cluster, which.Labels)
	if err != nil {
		return survey{}, err
	}
	pods, err := cluster.Pods.List(ctx, which)
	if err != nil {
		return survey{}, err
	}
	templates, err := cluster.Templates.List(ctx, which)
	return survey{pods.Items, services.Items, budgets.Items, templates.Items, copies.Items, used, unfinished, prefetching}, err
}

// prefetching are none where the setting is on: which stemcells there are, the director alone knows. Nor are there any where the
// CPI was given no right to them (rbac-prefetch.yaml).
func (c Collector) prefetching(ctx context.Context, cluster *kube.Client, ofDirector string) ([]*extension.DaemonSet, error) {
	if c.Assumed || c.Config.Stemcell.Prefetch.Enabled {
		return nil, nil
	}
	client, err := cluster.DaemonSets()
	if err != nil {
		return nil, err
	}
	found, err := client.List(ctx, kube.Selection{Labels: ofDirector + "," + manifest.LabelRole + "=" + manifest.RolePrefetch})
	if errors.Is(err, kube.ErrRefused) {
		return nil, nil
	}
	return found.Items, err
}

// unfinishedSnapshots are none where the cluster takes none, or the CPI was given no right to any (rbac.yaml).
func unfinishedSnapshots(ctx context.Context, cluster *kube.Client, ofDirector string) ([]*extension.VolumeSnapshot, error) {
	client, err := cluster.Snapshots()
	if err != nil {
		return nil, err
	}
	found, err := client.List(ctx, kube.Selection{Labels: ofDirector + "," + manifest.LabelUnfinished})
	if errors.Is(err, kube.ErrNotFound) || errors.Is(err, kube.ErrNotServed) || errors.Is(err, kube.ErrRefused) {
		return nil, nil
	}
	return found.Items, err
}

// namedPod reports that a set_vm_metadata has named the Pod, and not yet what it was made from.
func (s survey) namedPod(template *corev1.PodTemplate) bool {
	return slices.ContainsFunc(s.pods, func(pod *corev1.Pod) bool {
		return kube.OwnedBy(pod, template.UID) && manifest.Named(pod.Annotations)
	})
}

// machines are the Pods of all VMs, those that are about to be made again included.
func (s survey) machines() []*corev1.Pod {
	machines := call.Machines(s.pods)
	for _, template := range s.templates {
		if !slices.ContainsFunc(machines, func(pod *corev1.Pod) bool { return kube.OwnedBy(pod, template.UID) }) {
			machines = append(machines, manifest.Machine(template, ""))
		}
	}
	return machines
}

// pod returns the Pod of this name, or nil.
func (s survey) pod(name string) *corev1.Pod {
	for _, pod := range s.pods {
		if pod.Name == name {
			return pod
		}
	}
	return nil
}

// owns reports whether the Pod is the owner of its disk.
func (s survey) owns(pod *corev1.Pod) bool {
	return slices.ContainsFunc(s.used, func(pvc *corev1.PersistentVolumeClaim) bool {
		owner, _ := manifest.DiskOwnerOf(pvc)
		return owner.Pod == pod.UID
	})
}

// machine returns the Pod of this VM, or the one that would be created for it; nil if there is no such VM.
func (s survey) machine(vm string) *corev1.Pod {
	for _, pod := range s.machines() {
		if pod.Name == vm {
			return pod
		}
	}
	return nil
}

func (s survey) hasOwner(pod *corev1.Pod) bool {
	for _, other := range s.pods {
		if kube.OwnedBy(pod, other.UID) {
			return true
		}
	}
	return slices.ContainsFunc(s.templates, func(template *corev1.PodTemplate) bool { return kube.OwnedBy(pod, template.UID) })
}

func (s survey) anyBehind(service string) bool {
	for _, pod := range s.machines() {
		if manifest.Behind(service, pod) {
			return true
		}
	}
	return false
}

func (s survey) members(group string) (members []*corev1.Pod) {
	for _, pod := range s.machines() {
		if pod.Labels[manifest.LabelGroup] == group {
			members = append(members, pod)
		}
	}
	return members
}
