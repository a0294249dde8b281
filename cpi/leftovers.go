package cpi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/machine"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Collector finds what calls that were cut short have left, and removes it when Confirm is set. It
// never touches a disk (the claim for a copy that was never finished is none), nor anything of another director. What
// others have left of the CPI's own work it tells of too, and makes good: a disk that lost its attachment.
type Collector struct {
	Config   Config
	Director string // the director's UUID
	Confirm  bool
	Grace    time.Duration // what is younger may belong to a call that still runs; 0: the longest of the timeouts
	Out      io.Writer     // gets a line for each left-over: what, why, its age, what becomes of it
}

// Run removes, or only reports, what is left over now.
func (c Collector) Run(ctx context.Context) error {
	if label, ok := manifest.LabelValue(c.Director); !ok || label == "" {
		return fmt.Errorf("whose left-overs? Name the director with -director UUID, as `bosh env` shows it; %q is none", c.Director)
	}
	cluster, err := kube.New(c.Config.Kubernetes, c.Config.Timeouts.Request.Duration)
	if err != nil {
		return err
	}
	found, err := c.survey(ctx, cluster)
	if err != nil {
		return err
	}
	session := &machine.Session{
		Call: &call.Call{
			Ctx: ctx, Client: cluster, Director: c.Director, Log: slog.New(slog.DiscardHandler), PodOptions: c.Config.Pods,
		},
		Options: machine.Options{Disk: c.Config.Disk},
	}
	var failed []error
	left := found.leftOvers(time.Now(), cmp.Or(c.Grace, c.Config.Timeouts.longest()))
	for _, each := range left {
		outcome := "would be " + each.remedy
		switch {
		case each.remedy == "":
			outcome = "stays"
		case c.Confirm:
			outcome = each.remedy
			if err := settle(session, each); err != nil { //nolint:contextcheck // the session has it
				outcome = "failed"
				failed = append(failed, err)
			}
		}
		fmt.Fprintf(c.Out, "%s %s/%s (%s old): %s: %s\n",
			each.kind, cluster.Namespace, each.object.GetName(), duration.HumanDuration(each.age), each.why, outcome)
	}
	switch {
	case len(left) == 0:
		fmt.Fprintln(c.Out, "nothing is left over")
	case !c.Confirm:
		fmt.Fprintln(c.Out, "nothing was changed; -confirm does it")
	}
	return errors.Join(failed...)
}

// survey is all that a director has in the namespace, but for its disks.
type survey struct {
	pods     []*corev1.Pod
	services []*corev1.Service
	budgets  []*policyv1.PodDisruptionBudget
	// templates are those of machines that are made again for each disk
	templates []*corev1.PodTemplate
	copies    []*corev1.PersistentVolumeClaim // for disks that update_disk copies, as long as they are not proven
	used      []*corev1.PersistentVolumeClaim // disks that machines use
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
	inUse := which.Labels + "," + manifest.LabelVM + "," + manifest.LabelRole + "=" + manifest.RoleDisk
	used, err := cluster.Claims.List(ctx, kube.Selection{Labels: inUse})
	if err != nil {
		return survey{}, err
	}
	pods, err := cluster.Pods.List(ctx, which)
	if err != nil {
		return survey{}, err
	}
	templates, err := cluster.Templates.List(ctx, which)
	return survey{pods.Items, services.Items, budgets.Items, templates.Items, copies.Items, used.Items}, err
}

// leftOver is an object that no call needs any more, or a budget that is too big for its group.
type leftOver struct {
	object metav1.Object
	kind   string
	why    string
	age    time.Duration
	remedy string // in the past tense; "" when there is none
	patch  []byte // instead of a deletion
}

// Remedies.
const (
	deleted       = "deleted"
	attachedAgain = "attached again"
)

// leftOvers returns what is not needed. What is younger than patience may belong to a call that still
// runs. What is being deleted already is not named again.
func (s survey) leftOvers(now time.Time, patience time.Duration) []leftOver {
	var found []leftOver
	add := func(kind string, object metav1.Object, why, remedy string, patch []byte) {
		if object.GetDeletionTimestamp() == nil {
			age := now.Sub(object.GetCreationTimestamp().Time)
			found = append(found, leftOver{object: object, kind: kind, why: why, age: age, remedy: remedy, patch: patch})
		}
	}
	for _, pod := range s.pods {
		if why := s.needless(pod, now.Sub(pod.CreationTimestamp.Time) > patience); why != "" {
			add("Pod", pod, why, deleted, nil)
		} else if why := s.needless(pod, true); why != "" && pod.Labels[manifest.LabelRole] == manifest.RoleVM {
			add("Pod", pod, "if no call is at it any more, "+why, "", nil)
		}
	}
	for _, template := range s.templates {
		if now.Sub(template.CreationTimestamp.Time) > patience && !manifest.Named(template.Template.Annotations) && !s.namedPod(template) {
			add("PodTemplate", template, neverNamed, deleted, nil)
		}
	}
	for _, service := range s.services {
		if !manifest.Kept(service) && !s.anyBehind(service.Name) {
			add("Service", service, "no VM is behind it", deleted, nil)
		}
	}
	for _, claim := range s.copies {
		if now.Sub(claim.CreationTimestamp.Time) > patience {
			why := "an update_disk that was cut short has left it: it is no whole copy of disk " + claim.Annotations[manifest.AnnotationCopyOf]
			add("PersistentVolumeClaim", claim, why, deleted, nil)
		}
	}
	for _, claim := range s.used {
		vm, attachment := s.pod(claim.Labels[manifest.LabelVM]), s.pod(manifest.AttachmentName(claim.Name))
		switch lost, leaving := disk.Unheld(vm, attachment); {
		case lost:
			add("PersistentVolumeClaim", claim, "VM "+vm.Name+" uses the disk, but somebody has taken its attachment away", attachedAgain, nil)
		case leaving:
			add("PersistentVolumeClaim", claim, "somebody has told the attachment to end of the disk that VM "+vm.Name+
				" uses: it stays until the disk is free", "", nil)
		}
	}
	for _, budget := range s.budgets {
		members := s.members(budget.Labels[manifest.LabelGroup])
		if len(members) == 0 {
			add("PodDisruptionBudget", budget, "its instance group has no VM", deleted, nil)
			continue
		}
		rule, machines := manifest.BudgetOf(budget), len(kube.Running(members))
		if rule == nil || budget.Spec.MinAvailable == nil || budget.Spec.MinAvailable.IntVal <= rule.Of(machines) {
			continue
		}
		if patch, err := manifest.Recount(budget, machines); err == nil && patch != nil {
			add("PodDisruptionBudget", budget, fmt.Sprintf("%d VMs must stay, but the group has only %d (right while BOSH replaces one)",
				budget.Spec.MinAvailable.IntVal, machines), fmt.Sprintf("set to %d", rule.Of(machines)), patch)
		}
	}
	return found
}

// needless says why a Pod is not needed; "" for one that is, or may be.
func (s survey) needless(pod *corev1.Pod, old bool) string {
	switch pod.Labels[manifest.LabelRole] {
	case manifest.RoleAttachment:
		if !s.hasOwner(pod) {
			return "its VM " + pod.Labels[manifest.LabelVM] + " is gone"
		}
	case manifest.RoleReboot:
		if old {
			return "a reboot_vm that was cut short has left it"
		}
	case manifest.RoleFlush:
		if old {
			return "a snapshot_disk that was cut short has left it"
		}
	case manifest.RoleCopy:
		if old {
			return "an update_disk that was cut short has left it"
		}
	case manifest.RoleVM:
		if old && !manifest.Recreated(pod) && !manifest.Named(pod.Annotations) {
			return neverNamed
		}
	}
	return ""
}

const neverNamed = "a create_vm that was cut short has left it: set_vm_metadata was never called for it"

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

// settle does what is to be done about the left-over, unless it has changed since it was seen.
func settle(s *machine.Session, left leftOver) error {
	if left.remedy == attachedAgain {
		_, err := s.Disks(left.object.GetLabels()[manifest.LabelVM])
		return err
	}
	switch object := left.object.(type) {
	case *corev1.Pod:
		return errors.Join(s.Pods.DeleteUnchanged(s.Ctx, object), s.LeaveBudget(object))
	case *corev1.PodTemplate:
		return s.Templates.DeleteUnchanged(s.Ctx, object) // its Pod, and all else that belongs to it, follows
	case *corev1.Service:
		return s.Services.DeleteUnchanged(s.Ctx, object)
	case *corev1.PersistentVolumeClaim:
		return s.Claims.DeleteUnchanged(s.Ctx, object)
	case *policyv1.PodDisruptionBudget:
		budgets, err := s.Budgets()
		if err != nil {
			return err
		}
		if left.patch == nil {
			return budgets.DeleteUnchanged(s.Ctx, object)
		}
		_, err = budgets.Patch(s.Ctx, object.Name, left.patch)
		return err
	}
	return fmt.Errorf("%s %s is nothing that is collected", left.kind, left.object.GetName())
}
