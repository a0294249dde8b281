package instances

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Details are all objects of a machine.
type Details struct {
	Instance

	Machine  *corev1.Pod
	Helpers  []*corev1.Pod // attachments, and others that do something for it
	Claims   []*corev1.PersistentVolumeClaim
	Services []*corev1.Service
	Budgets  []*policyv1.PodDisruptionBudget
	Events   []*corev1.Event // of all of these, the latest last
}

// Describe returns the instance of this name with all its objects.
func Describe(ctx context.Context, client *kube.Client, filter Filter, name string) (Details, error) {
	instance, err := Find(ctx, client, filter, name)
	if err != nil {
		return Details{}, err
	}
	details := Details{Instance: instance, Machine: instance.pod}
	for _, gather := range []func(context.Context, *kube.Client) error{
		details.gatherDisks, details.gatherServices, details.gatherBudgets, details.gatherEvents,
	} {
		if err := gather(ctx, client); err != nil {
			return Details{}, err
		}
	}
	return details, nil
}

func (d *Details) gatherDisks(ctx context.Context, client *kube.Client) error {
	pods, err := client.Pods.List(ctx, kube.Selection{Labels: ours.Labels + "," + manifest.LabelVM + "=" + d.Pod})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if pod.Labels[manifest.LabelRole] != manifest.RoleVM {
			d.Helpers = append(d.Helpers, pod)
		}
	}
	claims, err := client.PVCs.List(ctx, ours)
	if err != nil {
		return err
	}
	d.Disks = disks(d.Pod, pods.Items, claims.Items)
	for _, claim := range claims.Items {
		used := slices.ContainsFunc(d.Disks, func(disk Disk) bool { return disk.CID == claim.Name })
		if used || mounts(d.Machine, claim.Name) {
			d.Claims = append(d.Claims, claim)
		}
	}
	return nil
}

func mounts(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == claim
	})
}

func (d *Details) gatherServices(ctx context.Context, client *kube.Client) error {
	services, err := client.Services.List(ctx, kube.Selection{})
	if err != nil {
		return err
	}
	for _, service := range services.Items {
		if selects(service, d.Machine) {
			d.Services = append(d.Services, service)
			d.Instance.Services = append(d.Instance.Services, service.Name)
		}
	}
	return nil
}

func (d *Details) gatherBudgets(ctx context.Context, client *kube.Client) error {
	among, err := client.PodDisruptionBudgets()
	if err != nil {
		return err
	}
	budgets, err := among.List(ctx, kube.Selection{})
	if err != nil {
		return err
	}
	for _, budget := range budgets.Items {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err == nil && !selector.Empty() && selector.Matches(labels.Set(d.Machine.Labels)) {
			d.Budgets = append(d.Budgets, budget)
		}
	}
	return nil
}

// gatherEvents takes those of the machine's objects; a former object of the same name is another.
func (d *Details) gatherEvents(ctx context.Context, client *kube.Client) error {
	events, err := client.Events.List(ctx, kube.Selection{})
	if err != nil {
		return err
	}
	about := map[string]bool{string(d.Machine.UID): true}
	for _, pod := range d.Helpers {
		about[string(pod.UID)] = true
	}
	for _, claim := range d.Claims {
		about[string(claim.UID)] = true
	}
	for _, event := range events.Items {
		if about[string(event.InvolvedObject.UID)] {
			d.Events = append(d.Events, event)
		}
	}
	slices.SortStableFunc(d.Events, func(a, b *corev1.Event) int { return LastSeen(a).Compare(LastSeen(b).Time) })
	return nil
}

// LastSeen is when the event happened last, by whichever of its fields is set.
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
