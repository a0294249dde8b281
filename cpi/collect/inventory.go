package collect

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/extension"
)

// inventory contains a director's objects in the namespace: those that can be orphaned, and those that show whether others are.
type inventory struct {
	pods     []*corev1.Pod
	services []*corev1.Service
	pdbs     []*policyv1.PodDisruptionBudget
	// podTemplates are the PodTemplates of VMs with disk_strategy: recreate.
	podTemplates []*corev1.PodTemplate
	// otherPods and otherTemplates belong to other directors, which may use disks that this one created.
	otherPods      []*corev1.Pod
	otherTemplates []*corev1.PodTemplate
	disks          []manifest.DiskPVC
	ownedDisks     []manifest.DiskPVC // disks with an owner record
	known          Known
	// unfinishedSnapshots are snapshots that no successful call returned.
	unfinishedSnapshots []*extension.VolumeSnapshot
}

// listInventory lists dependent objects before the Pods that they depend on, and Pods before their PodTemplates: otherwise an object
// would appear to be orphaned if both were created between the two lists.
func (c Collector) listInventory(ctx context.Context, cluster *kube.Client) (inventory, error) {
	selection := kube.Selection{Labels: manifest.DirectorSelector(c.Director)}
	services, err := cluster.Services.List(ctx, selection)
	if err != nil {
		return inventory{}, err
	}
	pdbs, err := cluster.PodDisruptionBudgets().List(ctx, selection)
	if err != nil {
		return inventory{}, err
	}
	disks, err := cluster.PVCs.List(ctx, kube.Selection{Labels: selection.Labels + "," + manifest.LabelRole + "=" + manifest.RoleDisk})
	if err != nil {
		return inventory{}, err
	}
	allDisks := manifest.NewDiskPVCs(disks.Items)
	owned := slices.DeleteFunc(slices.Clone(allDisks), func(pvc manifest.DiskPVC) bool {
		owner, _ := pvc.Owner()
		return owner == manifest.DiskOwner{}
	})
	unfinished, err := listUnfinishedSnapshots(ctx, cluster, selection.Labels)
	if err != nil {
		return inventory{}, err
	}
	managed := kube.Selection{Labels: manifest.ManagedSelector}
	pods, err := cluster.Pods.List(ctx, managed)
	if err != nil {
		return inventory{}, err
	}
	templates, err := cluster.PodTemplates.List(ctx, managed)
	if err != nil {
		return inventory{}, err
	}
	inv := inventory{
		services: services.Items, pdbs: pdbs.Items,
		disks: allDisks, ownedDisks: owned, known: c.Known, unfinishedSnapshots: unfinished,
	}
	inv.pods, inv.otherPods = splitByDirector(pods.Items, c.Director)
	inv.podTemplates, inv.otherTemplates = splitByDirector(templates.Items, c.Director)
	return inv, nil
}

// splitByDirector separates the objects of the director from those of others.
func splitByDirector[T metav1.Object](objects []T, director string) (own, others []T) {
	for _, object := range objects {
		if manifest.BelongsTo(object, director) {
			own = append(own, object)
		} else {
			others = append(others, object)
		}
	}
	return own, others
}

// listUnfinishedSnapshots returns none if the cluster does not serve VolumeSnapshots, or the CPI has no permission to list them
// (rbac.yaml).
func listUnfinishedSnapshots(ctx context.Context, cluster *kube.Client, directorSelector string) ([]*extension.VolumeSnapshot, error) {
	found, err := cluster.VolumeSnapshots().List(ctx, kube.Selection{Labels: directorSelector + "," + manifest.LabelIncomplete})
	if errors.Is(err, kube.ErrNotFound) || errors.Is(err, kube.ErrNotServed) || errors.Is(err, kube.ErrDenied) {
		return nil, nil
	}
	return found.Items, err
}

// podHasMetadata reports whether the template's Pod has metadata: set_vm_metadata updates the Pod before the template.
func (inv inventory) podHasMetadata(template *corev1.PodTemplate) bool {
	return slices.ContainsFunc(inv.pods, func(pod *corev1.Pod) bool {
		return kube.IsOwnedBy(pod, template.UID) && manifest.HasMetadata(pod.Annotations)
	})
}

// vmPods returns the Pods of all VMs. For a VM that has disk_strategy: recreate but no Pod, it returns the Pod that
// would be created.
func (inv inventory) vmPods() []manifest.VMPod {
	vmPods := manifest.VMPods(inv.pods)
	for _, template := range inv.podTemplates {
		if !slices.ContainsFunc(vmPods, func(vmPod manifest.VMPod) bool { return kube.IsOwnedBy(vmPod, template.UID) }) {
			vmPods = append(vmPods, manifest.PodFromTemplate(template, ""))
		}
	}
	return vmPods
}

// ownsDisk reports whether the attachment Pod is the owner of its disk.
func (inv inventory) ownsDisk(attachment manifest.AttachmentPod) bool {
	return slices.ContainsFunc(inv.ownedDisks, func(pvc manifest.DiskPVC) bool {
		owner, _ := pvc.Owner()
		return owner.Pod == attachment.UID
	})
}

// findVMPod returns the Pod of this VM, or the Pod that would be created for it. It returns a zero Pod if the VM
// does not exist.
func (inv inventory) findVMPod(vmCID string) manifest.VMPod {
	for _, vmPod := range inv.vmPods() {
		if vmPod.Name == vmCID {
			return vmPod
		}
	}
	return manifest.VMPod{}
}

// isVMPresent reports whether the VM Pod or PodTemplate that owns the attachment Pod exists.
func (inv inventory) isVMPresent(attachment manifest.AttachmentPod) bool {
	ownsPod := func(other *corev1.Pod) bool { return kube.IsOwnedBy(attachment, other.UID) }
	ownsTemplate := func(template *corev1.PodTemplate) bool { return kube.IsOwnedBy(attachment, template.UID) }
	return slices.ContainsFunc(inv.pods, ownsPod) || slices.ContainsFunc(inv.otherPods, ownsPod) ||
		slices.ContainsFunc(inv.podTemplates, ownsTemplate) || slices.ContainsFunc(inv.otherTemplates, ownsTemplate)
}

// isOtherVM reports whether another director has a VM with the CID.
func (inv inventory) isOtherVM(vmCID string) bool {
	return slices.ContainsFunc(inv.otherPods, func(pod *corev1.Pod) bool { return pod.Name == vmCID }) ||
		slices.ContainsFunc(inv.otherTemplates, func(template *corev1.PodTemplate) bool { return template.Name == vmCID })
}

func (inv inventory) hasVMBehind(service string) bool {
	return slices.ContainsFunc(inv.vmPods(), func(pod manifest.VMPod) bool { return manifest.IsBehindService(service, pod) })
}

// countVMs returns the number of VMs in the instance group, and how many of them are active.
func (inv inventory) countVMs(group string) (all, active int) {
	for _, vmPod := range inv.vmPods() {
		if manifest.GroupLabelOf(vmPod) == group {
			all++
			if kube.IsActive(vmPod.Pod) {
				active++
			}
		}
	}
	return all, active
}
