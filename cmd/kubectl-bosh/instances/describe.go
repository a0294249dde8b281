package instances

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// Details describe an instance with all its objects.
type Details struct {
	Instance

	VMPod                   manifest.VMPod
	HelperAndAttachmentPods []*corev1.Pod
	PVCs                    []*corev1.PersistentVolumeClaim
	Services                []*corev1.Service
	PDBs                    []*policyv1.PodDisruptionBudget
	Events                  []*corev1.Event // events of the objects above, sorted by time
}

// Describe returns the instance with this name and all its objects.
func Describe(ctx context.Context, client *kube.Client, filter Filter, name string) (Details, error) {
	instance, err := Find(ctx, client, filter, name)
	if err != nil {
		return Details{}, err
	}
	details := Details{Instance: instance, VMPod: instance.vmPod}
	for _, gather := range []func(context.Context, *kube.Client) error{
		details.gatherDisks, details.gatherServices, details.gatherPDBs, details.gatherEvents,
	} {
		if err := gather(ctx, client); err != nil {
			return Details{}, err
		}
	}
	return details, nil
}

func (d *Details) gatherDisks(ctx context.Context, client *kube.Client) error {
	pods, err := client.Pods.List(ctx, kube.Selection{Labels: managedByCPI.Labels + "," + manifest.LabelVM + "=" + d.Pod})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if !manifest.HasRole(pod, manifest.RoleVM) {
			d.HelperAndAttachmentPods = append(d.HelperAndAttachmentPods, pod)
		}
	}
	pvcs, err := client.PVCs.List(ctx, managedByCPI)
	if err != nil {
		return err
	}
	d.Disks = disksOf(d.VMPod, pods.Items, pvcs.Items)
	for _, pvc := range pvcs.Items {
		used := slices.ContainsFunc(d.Disks, func(disk Disk) bool { return disk.CID == pvc.Name })
		if used || mounts(d.VMPod, pvc.Name) {
			d.PVCs = append(d.PVCs, pvc)
		}
	}
	return nil
}

func mounts(pod manifest.VMPod, pvc string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == pvc
	})
}

func (d *Details) gatherServices(ctx context.Context, client *kube.Client) error {
	services, err := client.Services.List(ctx, kube.Selection{})
	if err != nil {
		return err
	}
	for _, service := range services.Items {
		if selects(service, d.VMPod) {
			d.Services = append(d.Services, service)
			d.Instance.Services = append(d.Instance.Services, service.Name)
		}
	}
	return nil
}

func (d *Details) gatherPDBs(ctx context.Context, kubeClient *kube.Client) error {
	pdbs, err := kubeClient.PodDisruptionBudgets().List(ctx, kube.Selection{})
	if err != nil {
		return err
	}
	for _, pdb := range pdbs.Items {
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err == nil && !selector.Empty() && selector.Matches(labels.Set(d.VMPod.Labels)) {
			d.PDBs = append(d.PDBs, pdb)
		}
	}
	return nil
}

// gatherEvents selects events by the UIDs of the objects, to omit events of deleted objects with the same names.
func (d *Details) gatherEvents(ctx context.Context, client *kube.Client) error {
	events, err := client.Events.List(ctx, kube.Selection{})
	if err != nil {
		return err
	}
	objectUIDs := map[string]bool{string(d.VMPod.UID): true}
	for _, pod := range d.HelperAndAttachmentPods {
		objectUIDs[string(pod.UID)] = true
	}
	for _, pvc := range d.PVCs {
		objectUIDs[string(pvc.UID)] = true
	}
	for _, event := range events.Items {
		if objectUIDs[string(event.InvolvedObject.UID)] {
			d.Events = append(d.Events, event)
		}
	}
	slices.SortStableFunc(d.Events, compareEvents)
	return nil
}

// compareEvents orders events by time. The times of some events have only whole seconds: within a second, it orders events by the
// changes in the cluster.
func compareEvents(a, b *corev1.Event) int {
	if order := LastSeen(a).Truncate(time.Second).Compare(LastSeen(b).Truncate(time.Second)); order != 0 {
		return order
	}
	order, _ := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return order
}

// LastSeen returns the time of the event's last occurrence, from the first field that is set.
func LastSeen(event *corev1.Event) metav1.Time {
	switch {
	case event.Series != nil:
		return metav1.Time(event.Series.LastObservedTime)
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp
	case !event.EventTime.IsZero():
		return metav1.Time(event.EventTime)
	default:
		return event.CreationTimestamp
	}
}
