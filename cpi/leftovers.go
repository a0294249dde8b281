package cpi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/machine"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/extension"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Collector finds what calls that were cut short have left, and removes it when Confirm is set. It
// never touches a disk (the claim for a copy that was never finished is none), nor anything of another director. What
// others have left of the CPI's own work it tells of too, and makes good: a disk that lost its attachment.
type Collector struct {
	Config Config
	// Assumed tells that Config is not the director's, so that what its settings alone make a left-over is none.
	Assumed  bool
	Director string // the director's UUID
	Confirm  bool
	Grace    time.Duration // what is younger may belong to a call that still runs; 0: the longest of the timeouts
	Out      io.Writer     // gets a line for each left-over: what, why, its age, what becomes of it
}

// Run removes, or only reports, what is left over now in the cluster of the configuration.
func (c Collector) Run(ctx context.Context) error {
	if err := c.named(); err != nil {
		return err
	}
	cluster, err := kube.New(c.Config.Kubernetes, c.Config.Timeouts.Request.Duration)
	if err != nil {
		return err
	}
	found, err := c.Collect(ctx, cluster)
	return errors.Join(err, c.report(found, err == nil))
}

// Collected is a left-over, and what has become of it.
type Collected struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Age       string `json:"age"` // as kubectl shows it
	Why       string `json:"why"`
	Outcome   string `json:"outcome"`
}

// named fails when no director is named.
func (c Collector) named() error {
	if label, ok := manifest.LabelValue(c.Director); !ok || label == "" {
		return fmt.Errorf("whose left-overs? Name the director with -director UUID, as `bosh env` shows it; %q is none", c.Director)
	}
	return nil
}

// Collect removes, or only returns, what is left over now in the client's cluster and namespace, whatever cluster the
// configuration names.
func (c Collector) Collect(ctx context.Context, cluster *kube.Client) ([]Collected, error) {
	if err := c.named(); err != nil {
		return nil, err
	}
	found, err := c.survey(ctx, cluster)
	if err != nil {
		return nil, err
	}
	// Ages are by the clock that the objects were dated by: this machine's may have jumped.
	server, err := cluster.Server(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now().Add(server.Ahead)
	session := &machine.Session{
		Call: &call.Call{
			Ctx: ctx, Client: cluster, ID: sync.OnceValue(newID), Director: c.Director,
			Log: slog.New(slog.DiscardHandler), PodOptions: c.Config.Pods,
		},
		Options: machine.Options{Disk: c.Config.Disk},
	}
	var collected []Collected
	var failed []error
	for _, each := range found.leftOvers(now, cmp.Or(c.Grace, c.Config.Timeouts.longest())) {
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
		collected = append(collected, Collected{Kind: each.kind, Namespace: cluster.Namespace, Name: each.object.GetName(),
			Age: duration.HumanDuration(each.age), Why: each.why, Outcome: outcome})
	}
	return collected, errors.Join(failed...)
}

// report writes what was collected, also where some of it failed. Where nothing could be looked at there is nothing to say.
func (c Collector) report(found []Collected, whole bool) error {
	if len(found) == 0 && !whole {
		return nil
	}
	for _, each := range found {
		if _, err := fmt.Fprintln(c.Out, each); err != nil {
			return err
		}
	}
	switch {
	case len(found) == 0:
		fmt.Fprintln(c.Out, "nothing is left over")
	case !c.Confirm:
		fmt.Fprintln(c.Out, "nothing was changed; -confirm does it")
	}
	return nil
}

// String is a line about it.
func (c Collected) String() string {
	return fmt.Sprintf("%s %s/%s (%s old): %s: %s", c.Kind, c.Namespace, c.Name, c.Age, c.Why, c.Outcome)
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
	released      = "released"
	attachedAgain = "attached again"
)

// findings are the left-overs that were found at a time. What is younger than patience may belong to a call that still
// runs.
type findings struct {
	now      time.Time
	patience time.Duration
	found    []leftOver
}

// age is the time since the object was created, or since a call has last adopted it.
func (f *findings) age(object metav1.Object) time.Duration {
	since := object.GetCreationTimestamp().Time
	if began := call.Began(object); began.After(since) {
		since = began
	}
	return f.now.Sub(since)
}

func (f *findings) old(object metav1.Object) bool { return f.age(object) > f.patience }

// add notes an object, unless it is being deleted already.
func (f *findings) add(kind string, object metav1.Object, why, remedy string, patch []byte) {
	if object.GetDeletionTimestamp() == nil {
		f.found = append(f.found, leftOver{object: object, kind: kind, why: why, age: f.age(object), remedy: remedy, patch: patch})
	}
}

// leftOvers returns what is not needed.
func (s survey) leftOvers(now time.Time, patience time.Duration) []leftOver {
	f := &findings{now: now, patience: patience}
	s.ofMachines(f)
	s.ofDisks(f)
	s.ofGroups(f)
	for _, set := range s.prefetching {
		f.add("DaemonSet", set, "nodes keep the image of stemcell "+set.Annotations[manifest.AnnotationStemcell]+
			" for it, and stemcell.prefetch is not enabled any more", deleted, nil)
	}
	return f.found
}

func (s survey) ofMachines(f *findings) {
	for _, pod := range s.pods {
		if why := s.needless(pod, f.old(pod)); why != "" {
			f.add("Pod", pod, why, deleted, nil)
		} else if why := s.needless(pod, true); why != "" && pod.Labels[manifest.LabelRole] == manifest.RoleVM {
			f.add("Pod", pod, "if no call is at it any more, "+why, "", nil)
		}
	}
	for _, template := range s.templates {
		if f.old(template) && !manifest.Named(template.Template.Annotations) && !s.namedPod(template) {
			f.add("PodTemplate", template, neverNamed, deleted, nil)
		}
	}
	for _, service := range s.services {
		if !manifest.Kept(service) && !s.anyBehind(service.Name) {
			f.add("Service", service, "no VM is behind it", deleted, nil)
		}
	}
}

func (s survey) ofDisks(f *findings) {
	for _, claim := range s.copies {
		if f.old(claim) {
			why := "an update_disk that was cut short has left it: it is no whole copy of disk " + claim.Annotations[manifest.AnnotationCopyOf]
			f.add("PersistentVolumeClaim", claim, why, deleted, nil)
		}
	}
	for _, snapshot := range s.unfinished {
		if f.old(snapshot) {
			f.add("VolumeSnapshot", snapshot, "a snapshot_disk that was cut short has left it: no director knows it", deleted, nil)
		}
	}
	for _, claim := range s.used {
		s.ofOwner(f, claim)
	}
}

// ofOwner is about who has the disk: a record that names nobody who could use it, and an attachment that others have deleted.
func (s survey) ofOwner(f *findings, claim *corev1.PersistentVolumeClaim) {
	owner, ok := manifest.DiskOwnerOf(claim)
	vm, attachment := s.machine(owner.VM), s.pod(manifest.AttachmentName(claim.Name))
	lost, leaving := disk.Unheld(vm, attachment)
	switch {
	case vm == nil && attachment == nil && !ok:
		f.add("PersistentVolumeClaim", claim, fmt.Sprintf("its owner record is damaged: VM %q, Pod %q", owner.VM, owner.Pod), released, nil)
	case vm == nil && attachment == nil && owner.VM != "":
		f.add("PersistentVolumeClaim", claim, "it is recorded as attached to VM "+owner.VM+", which does not exist", released, nil)
	case vm != nil && !ok:
		f.add("PersistentVolumeClaim", claim, "its owner record is damaged: it names VM "+vm.Name+", and no Pod", attachedAgain, nil)
	case lost:
		f.add("PersistentVolumeClaim", claim, "VM "+vm.Name+" uses the disk, but somebody has taken its attachment away", attachedAgain, nil)
	case leaving:
		f.add("PersistentVolumeClaim", claim, "somebody has told the attachment to end of the disk that VM "+vm.Name+
			" uses: it stays until the disk is free", "", nil)
	}
}

func (s survey) ofGroups(f *findings) {
	for _, budget := range s.budgets {
		members := s.members(budget.Labels[manifest.LabelGroup])
		if len(members) == 0 {
			f.add("PodDisruptionBudget", budget, "its instance group has no VM", deleted, nil)
			continue
		}
		rule, machines := manifest.BudgetOf(budget), len(kube.Running(members))
		if rule == nil || budget.Spec.MinAvailable == nil || budget.Spec.MinAvailable.IntVal <= rule.Of(machines) {
			continue
		}
		if patch, err := manifest.Recount(budget, machines); err == nil && patch != nil {
			f.add("PodDisruptionBudget", budget, fmt.Sprintf("%d VMs must stay, but the group has only %d (right while BOSH replaces one)",
				budget.Spec.MinAvailable.IntVal, machines), fmt.Sprintf("set to %d", rule.Of(machines)), patch)
		}
	}
}

// needless says why a Pod is not needed; "" for one that is, or may be.
func (s survey) needless(pod *corev1.Pod, old bool) string {
	switch pod.Labels[manifest.LabelRole] {
	case manifest.RoleAttachment:
		if !s.hasOwner(pod) {
			return "its VM " + pod.Labels[manifest.LabelVM] + " is gone"
		}
		if old && manifest.Gated(pod) && !s.owns(pod) {
			return "an attach_disk that was cut short has left it"
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

// settle does what is to be done about the left-over, unless it has changed since it was seen.
func settle(s *machine.Session, left leftOver) error {
	if pvc, isDisk := left.object.(*corev1.PersistentVolumeClaim); isDisk && left.remedy == released {
		owner, _ := manifest.DiskOwnerOf(pvc)
		_, err := (&disk.Session{Call: s.Call}).Release(pvc.Name, owner)
		return err
	}
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
	case *extension.DaemonSet:
		sets, err := s.DaemonSets()
		if err != nil {
			return err
		}
		return sets.Delete(s.Ctx, object)
	case *extension.VolumeSnapshot:
		snapshots, err := s.Snapshots()
		if err != nil {
			return err
		}
		return snapshots.DeleteUnchanged(s.Ctx, object)
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
