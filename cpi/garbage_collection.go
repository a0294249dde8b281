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
	"bosh-kubernetes-cpi/cpi/vm"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/extension"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Collector finds what calls that were cut short have left, and removes it when Confirm is set. It
// never touches a disk (the claim for a copy that was never finished is none), nor anything of another director. What
// others have left of the CPI's own work it tells of too, and makes good: a disk that lost its attachment.
type Collector struct {
	Config Config
	// ConfigAssumed tells that Config is not the director's, so that what its settings alone make a left-over is none.
	ConfigAssumed bool
	Director      string // the director's UUID
	Confirm       bool
	MinAge        time.Duration // what is younger may belong to a call that still runs; 0: the longest of the timeouts
	Out           io.Writer     // gets a line for each left-over: what, why, its age, what becomes of it
}

// Run removes, or only reports, what is left over now in the cluster of the configuration.
func (c Collector) Run(ctx context.Context) error {
	if err := c.validateDirector(); err != nil {
		return err
	}
	cluster, err := kube.New(c.Config.Kubernetes, c.Config.Timeouts.Request.Duration)
	if err != nil {
		return err
	}
	results, err := c.Collect(ctx, cluster)
	return errors.Join(err, c.writeReport(results, err == nil))
}

// CollectionResult is a left-over, and what has become of it.
type CollectionResult struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Age       string `json:"age"` // as kubectl shows it
	Reason    string `json:"why"`
	Outcome   string `json:"outcome"`
}

// validateDirector fails when no director is named.
func (c Collector) validateDirector() error {
	if label, ok := manifest.LabelValue(c.Director); !ok || label == "" {
		return fmt.Errorf("whose left-overs? Name the director with -director UUID, as `bosh env` shows it; %q is none", c.Director)
	}
	return nil
}

// Collect removes, or only returns, what is left over now in the client's cluster and namespace, whatever cluster the
// configuration names.
func (c Collector) Collect(ctx context.Context, cluster *kube.Client) ([]CollectionResult, error) {
	if err := c.validateDirector(); err != nil {
		return nil, err
	}
	inv, err := c.listInventory(ctx, cluster)
	if err != nil {
		return nil, err
	}
	// Ages are by the clock that the objects were dated by: this machine's may have jumped.
	server, err := cluster.GetServerInfo(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now().Add(server.ClockSkew)
	session := &vm.Session{
		Call: &call.Call{
			Ctx: ctx, Client: cluster, ID: sync.OnceValue(newCallID), Director: c.Director,
			Log: slog.New(slog.DiscardHandler), PodOptions: c.Config.Pods,
		},
		Options: vm.Options{Disk: c.Config.Disk},
	}
	var collected []CollectionResult
	var failed []error
	for _, orphan := range inv.findOrphans(now, cmp.Or(c.MinAge, c.Config.Timeouts.longest())) {
		outcome := "would be " + orphan.remedy
		switch {
		case orphan.remedy == "":
			outcome = "stays"
		case c.Confirm:
			outcome = orphan.remedy
			if err := applyRemedy(session, orphan); err != nil { //nolint:contextcheck // the session has it
				outcome = "failed"
				failed = append(failed, err)
			}
		}
		collected = append(collected, CollectionResult{Kind: orphan.kind, Namespace: cluster.Namespace, Name: orphan.object.GetName(),
			Age: duration.HumanDuration(orphan.age), Reason: orphan.reason, Outcome: outcome})
	}
	return collected, errors.Join(failed...)
}

// writeReport writes what was collected, also where some of it failed. Where nothing could be looked at there is nothing to say.
func (c Collector) writeReport(results []CollectionResult, complete bool) error {
	if len(results) == 0 && !complete {
		return nil
	}
	for _, result := range results {
		if _, err := fmt.Fprintln(c.Out, result); err != nil {
			return err
		}
	}
	switch {
	case len(results) == 0:
		fmt.Fprintln(c.Out, "nothing is left over")
	case !c.Confirm:
		fmt.Fprintln(c.Out, "nothing was changed; -confirm does it")
	}
	return nil
}

// String is a line about it.
func (c CollectionResult) String() string {
	return fmt.Sprintf("%s %s/%s (%s old): %s: %s", c.Kind, c.Namespace, c.Name, c.Age, c.Reason, c.Outcome)
}

// orphanedResource is an object that no call needs any more, or a budget that is too big for its group.
type orphanedResource struct {
	object metav1.Object
	kind   string
	reason string
	age    time.Duration
	remedy string // in the past tense; "" when there is none
	patch  []byte // instead of a deletion
}

// Remedies.
const (
	remedyDeleted    = "deleted"
	remedyReleased   = "released"
	remedyReattached = "attached again"
)

// orphanScan are the left-overs that were found at a time. What is younger than patience may belong to a call that still
// runs.
type orphanScan struct {
	now     time.Time
	minAge  time.Duration
	orphans []orphanedResource
}

// age is the time since the object was created, or since a call has last adopted it.
func (scan *orphanScan) age(object metav1.Object) time.Duration {
	since := object.GetCreationTimestamp().Time
	if began := call.StartTime(object); began.After(since) {
		since = began
	}
	return scan.now.Sub(since)
}

func (scan *orphanScan) exceedsMinAge(object metav1.Object) bool {
	return scan.age(object) > scan.minAge
}

// add notes an object, unless it is being deleted already.
func (scan *orphanScan) add(kind string, object metav1.Object, reason, remedy string, patch []byte) {
	if object.GetDeletionTimestamp() == nil {
		scan.orphans = append(
			scan.orphans,
			orphanedResource{object: object, kind: kind, reason: reason, age: scan.age(object), remedy: remedy, patch: patch},
		)
	}
}

// findOrphans returns what is not needed.
func (inv inventory) findOrphans(now time.Time, minAge time.Duration) []orphanedResource {
	scan := &orphanScan{now: now, minAge: minAge}
	inv.addVMOrphans(scan)
	inv.addDiskOrphans(scan)
	inv.addPDBOrphans(scan)
	for _, set := range inv.obsoletePrefetches {
		scan.add("DaemonSet", set, "nodes keep the image of stemcell "+set.Annotations[manifest.AnnotationStemcell]+
			" for it, and stemcell.prefetch is not enabled any more", remedyDeleted, nil)
	}
	return scan.orphans
}

func (inv inventory) addVMOrphans(scan *orphanScan) {
	for _, pod := range inv.pods {
		if reason := inv.orphanReason(pod, scan.exceedsMinAge(pod)); reason != "" {
			scan.add("Pod", pod, reason, remedyDeleted, nil)
		} else if reason := inv.orphanReason(pod, true); reason != "" && pod.Labels[manifest.LabelRole] == manifest.RoleVM {
			scan.add("Pod", pod, "if no call is at it any more, "+reason, "", nil)
		}
	}
	for _, template := range inv.podTemplates {
		if scan.exceedsMinAge(template) && !manifest.HasMetadata(template.Template.Annotations) && !inv.hasNamedPod(template) {
			scan.add("PodTemplate", template, reasonNeverNamed, remedyDeleted, nil)
		}
	}
	for _, service := range inv.services {
		if !manifest.IsKept(service) && !inv.hasVMBehind(service.Name) {
			scan.add("Service", service, "no VM is behind it", remedyDeleted, nil)
		}
	}
}

func (inv inventory) addDiskOrphans(scan *orphanScan) {
	for _, pvc := range inv.incompleteCopies {
		if scan.exceedsMinAge(pvc) {
			reason := "an update_disk that was cut short has left it: it is no whole copy of disk " + pvc.Annotations[manifest.AnnotationCopyOf]
			scan.add("PersistentVolumeClaim", pvc, reason, remedyDeleted, nil)
		}
	}
	for _, snapshot := range inv.unfinishedSnapshots {
		if scan.exceedsMinAge(snapshot) {
			scan.add("VolumeSnapshot", snapshot, "a snapshot_disk that was cut short has left it: no director knows it", remedyDeleted, nil)
		}
	}
	for _, pvc := range inv.ownedDisks {
		inv.addOwnerProblems(scan, pvc)
	}
}

// addOwnerProblems is about who has the disk: a record that names nobody who could use it, and an attachment that others have deleted.
func (inv inventory) addOwnerProblems(scan *orphanScan, pvc *corev1.PersistentVolumeClaim) {
	owner, ok := manifest.DiskOwnerOf(pvc)
	vmPod, attachment := inv.findVMPod(owner.VM), inv.findPod(manifest.AttachmentName(pvc.Name))
	lost, terminating := disk.InspectAttachment(vmPod, attachment)
	switch {
	case vmPod == nil && attachment == nil && !ok:
		scan.add(
			"PersistentVolumeClaim",
			pvc,
			fmt.Sprintf("its owner record is damaged: VM %q, Pod %q", owner.VM, owner.Pod),
			remedyReleased,
			nil,
		)
	case vmPod == nil && attachment == nil && owner.VM != "":
		scan.add("PersistentVolumeClaim", pvc, "it is recorded as attached to VM "+owner.VM+", which does not exist", remedyReleased, nil)
	case vmPod != nil && !ok:
		scan.add("PersistentVolumeClaim", pvc, "its owner record is damaged: it names VM "+vmPod.Name+", and no Pod", remedyReattached, nil)
	case lost:
		scan.add(
			"PersistentVolumeClaim",
			pvc,
			"VM "+vmPod.Name+" uses the disk, but somebody has taken its attachment away",
			remedyReattached,
			nil,
		)
	case terminating:
		scan.add("PersistentVolumeClaim", pvc, "somebody has told the attachment to end of the disk that VM "+vmPod.Name+
			" uses: it stays until the disk is free", "", nil)
	}
}

func (inv inventory) addPDBOrphans(scan *orphanScan) {
	for _, pdb := range inv.pdbs {
		members := inv.members(pdb.Labels[manifest.LabelGroup])
		if len(members) == 0 {
			scan.add("PodDisruptionBudget", pdb, "its instance group has no VM", remedyDeleted, nil)
			continue
		}
		rule, activeVMs := manifest.DisruptionBudgetOf(pdb), len(kube.ActivePods(members))
		if rule == nil || pdb.Spec.MinAvailable == nil || pdb.Spec.MinAvailable.IntVal <= rule.MinAvailableFor(activeVMs) {
			continue
		}
		if patch, err := manifest.ResizePDB(pdb, activeVMs); err == nil && patch != nil {
			scan.add("PodDisruptionBudget", pdb, fmt.Sprintf("%d VMs must stay, but the group has only %d (right while BOSH replaces one)",
				pdb.Spec.MinAvailable.IntVal, activeVMs), fmt.Sprintf("set to %d", rule.MinAvailableFor(activeVMs)), patch)
		}
	}
}

// orphanReason says why a Pod is not needed; "" for one that is, or may be.
func (inv inventory) orphanReason(pod *corev1.Pod, old bool) string {
	switch pod.Labels[manifest.LabelRole] {
	case manifest.RoleAttachment:
		if !inv.hasOwner(pod) {
			return "its VM " + pod.Labels[manifest.LabelVM] + " is gone"
		}
		if old && manifest.IsGated(pod) && !inv.ownsDisk(pod) {
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
		if old && !manifest.IsRecreated(pod) && !manifest.HasMetadata(pod.Annotations) {
			return reasonNeverNamed
		}
	}
	return ""
}

const reasonNeverNamed = "a create_vm that was cut short has left it: set_vm_metadata was never called for it"

// applyRemedy does what is to be done about the left-over, unless it has changed since it was seen.
func applyRemedy(s *vm.Session, orphan orphanedResource) error {
	if pvc, isDisk := orphan.object.(*corev1.PersistentVolumeClaim); isDisk && orphan.remedy == remedyReleased {
		owner, _ := manifest.DiskOwnerOf(pvc)
		_, err := (&disk.Session{Call: s.Call}).Release(pvc.Name, owner)
		return err
	}
	if orphan.remedy == remedyReattached {
		_, err := s.GetDisks(orphan.object.GetLabels()[manifest.LabelVM])
		return err
	}
	switch object := orphan.object.(type) {
	case *corev1.Pod:
		return errors.Join(s.Pods.DeleteUnchanged(s.Ctx, object), s.UpdatePDBAfterDelete(object))
	case *corev1.PodTemplate:
		return s.PodTemplates.DeleteUnchanged(s.Ctx, object) // its Pod, and all else that belongs to it, follows
	case *corev1.Service:
		return s.Services.DeleteUnchanged(s.Ctx, object)
	case *corev1.PersistentVolumeClaim:
		return s.PVCs.DeleteUnchanged(s.Ctx, object)
	case *extension.DaemonSet:
		sets, err := s.DaemonSets()
		if err != nil {
			return err
		}
		return sets.Delete(s.Ctx, object)
	case *extension.VolumeSnapshot:
		snapshots, err := s.VolumeSnapshots()
		if err != nil {
			return err
		}
		return snapshots.DeleteUnchanged(s.Ctx, object)
	case *policyv1.PodDisruptionBudget:
		pdbs, err := s.PodDisruptionBudgets()
		if err != nil {
			return err
		}
		if orphan.patch == nil {
			return pdbs.DeleteUnchanged(s.Ctx, object)
		}
		_, err = pdbs.Patch(s.Ctx, object.Name, orphan.patch)
		return err
	}
	return fmt.Errorf("%s %s is nothing that is collected", orphan.kind, orphan.object.GetName())
}
