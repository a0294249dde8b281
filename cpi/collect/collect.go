// Package collect finds the resources that interrupted calls orphaned, and deletes or repairs them: garbage collection.
package collect

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/vm"
	"bosh-kubernetes-cpi/kube"
)

// Collector finds orphaned resources of interrupted calls, and deletes them if Confirm is set. It never deletes a disk, or an
// object of another director. It also repairs disks with an invalid owner record, and disks in use if another client deleted their
// attachment Pods.
type Collector struct {
	Config   cpi.Config
	Director string // the director's UUID
	Confirm  bool
	Known    Known         // VMs and disks that the director knows; all others are listed, but never deleted
	MinAge   time.Duration // younger objects may belong to a running call; default: the longest timeout of a call
	Out      io.Writer     // receives a line for each orphaned resource: object, age, reason and outcome
}

// Run lists the orphaned resources in the cluster of the configuration, and deletes them if Confirm is set.
func (c Collector) Run(ctx context.Context) error {
	if err := c.validateDirector(); err != nil {
		return err
	}
	cluster, err := kube.New(c.Config.Cluster, manifest.ManagedBy, c.Config.Timeouts.Request.Duration)
	if err != nil {
		return err
	}
	results, err := c.Collect(ctx, cluster)
	return errors.Join(err, c.Write(c.Out, results, err == nil, "-confirm"))
}

// Result is an orphaned resource and the outcome of its collection.
type Result struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Age       string `json:"age"` // as kubectl shows it
	Reason    string `json:"reason"`
	Outcome   string `json:"outcome"`
}

// validateDirector fails if the director's UUID is missing or is not a valid label.
func (c Collector) validateDirector() error {
	if c.Director == "" {
		return errors.New("-director is required; set it to the UUID that `bosh env` prints")
	}
	if label, ok := manifest.LabelValue(c.Director); !ok || label == "" {
		return fmt.Errorf("director %q is not a valid label value; use the UUID that `bosh env` prints", c.Director)
	}
	return nil
}

// Collect returns the orphaned resources in the client's cluster and namespace, and deletes them if Confirm is set. It ignores the
// cluster of the configuration.
func (c Collector) Collect(ctx context.Context, cluster *kube.Client) ([]Result, error) {
	if err := c.validateDirector(); err != nil {
		return nil, err
	}
	inv, err := c.listInventory(ctx, cluster)
	if err != nil {
		return nil, err
	}
	current := c.Config.NewCall(c.Director, slog.New(slog.DiscardHandler))
	current.Ctx, current.Client = ctx, cluster
	session := c.Config.VMSession(current, nil)
	var collected []Result
	var failed []error
	now := cluster.ServerTime(time.Now()) // the API server sets the times of the objects; the clock of this host may be wrong
	//nolint:contextcheck // the session of a remedy contains the context
	for _, orphan := range inv.findOrphans(now, cmp.Or(c.MinAge, c.Config.Timeouts.Longest())) {
		outcome, err := c.applyRemedy(session, orphan.remedy)
		failed = append(failed, err)
		collected = append(collected, Result{Kind: kindOf(orphan.object), Namespace: cluster.Namespace, Name: orphan.object.GetName(),
			Age: duration.HumanDuration(orphan.age), Reason: orphan.reason, Outcome: outcome})
	}
	return collected, errors.Join(failed...)
}

// applyRemedy applies the remedy if Confirm is set, and returns the outcome.
func (c Collector) applyRemedy(session *vm.Session, remedy *remedy) (outcome string, err error) {
	switch {
	case remedy == nil:
		return "kept", nil
	case !c.Confirm:
		return "would be " + remedy.outcome, nil
	}
	if err := remedy.apply(session); err != nil {
		return "failed", err
	}
	return remedy.outcome, nil
}

// Write writes the results, even if the collection of some failed. complete reports whether all resources could be listed. confirmFlag
// is the name of the flag that sets Confirm.
func (c Collector) Write(out io.Writer, results []Result, complete bool, confirmFlag string) error {
	for _, result := range results {
		if _, err := fmt.Fprintln(out, result); err != nil {
			return err
		}
	}
	switch {
	case len(results) == 0 && complete:
		fmt.Fprintln(out, "no orphaned resources")
	case len(results) > 0 && !c.Confirm:
		fmt.Fprintln(out, "nothing was changed; to delete or repair these resources, run with "+confirmFlag)
	}
	return nil
}

// String describes the result in one line.
func (c Result) String() string {
	return fmt.Sprintf("%s %s/%s (%s old): %s: %s", c.Kind, c.Namespace, c.Name, c.Age, c.Reason, c.Outcome)
}

// orphanedResource is an object that no call needs, a disk to repair, or a PodDisruptionBudget that is too large for its group.
type orphanedResource struct {
	object metav1.Object
	reason string
	age    time.Duration
	remedy *remedy // nil if there is none
}

// orphanScan collects the orphaned resources that are found at one time. Objects that are not older than minAge may belong to a
// running call.
type orphanScan struct {
	now     time.Time
	minAge  time.Duration
	orphans []orphanedResource
}

// age returns the time since a call created, adopted or changed the object.
func (scan *orphanScan) age(object metav1.Object) time.Duration {
	return scan.now.Sub(call.LastWritten(object))
}

func (scan *orphanScan) exceedsMinAge(object metav1.Object) bool {
	return scan.age(object) > scan.minAge
}

// add adds an object, unless it is already being deleted.
func (scan *orphanScan) add(object metav1.Object, reason string, remedy *remedy) {
	if object.GetDeletionTimestamp() == nil {
		scan.orphans = append(scan.orphans, orphanedResource{object: object, reason: reason, age: scan.age(object), remedy: remedy})
	}
}

// findOrphans returns all orphaned resources.
func (inv inventory) findOrphans(now time.Time, minAge time.Duration) []orphanedResource {
	scan := &orphanScan{now: now, minAge: minAge}
	inv.addVMOrphans(scan)
	inv.addDiskOrphans(scan)
	inv.addPDBOrphans(scan)
	inv.addUnknown(scan)
	return scan.orphans
}

func (inv inventory) addVMOrphans(scan *orphanScan) {
	for _, pod := range inv.pods {
		if reason := inv.orphanReason(pod, scan.exceedsMinAge(pod)); reason != "" {
			scan.add(pod, reason, deletePod(pod))
		}
	}
	for _, vmPod := range manifest.VMPods(inv.pods) {
		switch {
		case vmPod.HasRecreateStrategy() || vmPod.HasMetadata():
		case scan.exceedsMinAge(vmPod):
			scan.add(vmPod.Pod, reasonNeverNamed, deleteVMPod(vmPod))
		default:
			scan.add(vmPod.Pod, "unless its call is still running: "+reasonNeverNamed, nil)
		}
	}
	for _, template := range inv.podTemplates {
		if scan.exceedsMinAge(template) && !manifest.HasMetadata(template.Template.Annotations) && !inv.podHasMetadata(template) {
			scan.add(template, reasonNeverNamed, deleteTemplate(template))
		}
	}
	for _, service := range inv.services {
		if !manifest.IsKept(service) && !inv.hasVMBehind(service.Name) {
			scan.add(service, "has no VM", deleteService(service))
		}
	}
}

func (inv inventory) addDiskOrphans(scan *orphanScan) {
	for _, snapshot := range inv.unfinishedSnapshots {
		if scan.exceedsMinAge(snapshot) {
			scan.add(snapshot, "orphaned by an interrupted snapshot_disk: unknown to the director", deleteSnapshot(snapshot))
		}
	}
	for _, pvc := range inv.ownedDisks {
		inv.addOwnerProblems(scan, pvc)
	}
}

// addOwnerProblems adds the disk if its owner record is invalid or names a VM that does not exist, or if its attachment Pod is lost or
// terminating. It ignores a disk that a VM of another director has.
func (inv inventory) addOwnerProblems(scan *orphanScan, pvc manifest.DiskPVC) {
	owner, ok := pvc.Owner()
	if inv.isOtherVM(owner.VM) {
		return
	}
	vmPod, attachment := inv.findVMPod(owner.VM), manifest.FindAttachment(slices.Concat(inv.pods, inv.otherPods), pvc.Name)
	lost, terminating := disk.InspectAttachment(vmPod, attachment)
	switch {
	case vmPod.Pod == nil && attachment.Pod == nil && !ok:
		reason := fmt.Sprintf("its owner record is invalid: VM %q, Pod %q", owner.VM, owner.Pod)
		scan.add(pvc.PVC, reason, releaseDisk(pvc, owner))
	case vmPod.Pod == nil && attachment.Pod == nil && owner.VM != "":
		scan.add(pvc.PVC, "recorded as attached to VM "+owner.VM+", which does not exist", releaseDisk(pvc, owner))
	case vmPod.Pod != nil && !ok:
		scan.add(pvc.PVC, "its owner record is invalid: VM "+vmPod.Name+", no Pod", reattachDisk(vmPod.Name))
	case lost:
		reason := "VM " + vmPod.Name + " uses the disk, but its attachment Pod was deleted by another client"
		if attachment.Pod != nil {
			reason = fmt.Sprintf("VM %s uses the disk, but its attachment Pod is %s", vmPod.Name,
				cmp.Or(attachment.Status.Reason, string(attachment.Status.Phase)))
		}
		scan.add(pvc.PVC, reason, reattachDisk(vmPod.Name))
	case terminating:
		scan.add(pvc.PVC, "its attachment Pod is being deleted by another client; it stays until VM "+vmPod.Name+
			" stops using the disk", nil)
	}
}

func (inv inventory) addPDBOrphans(scan *orphanScan) {
	for _, pdb := range inv.pdbs {
		allVMs, activeVMs := inv.countVMs(manifest.GroupLabelOf(pdb))
		if allVMs == 0 {
			scan.add(pdb, "its instance group has no VM", deletePDB(pdb))
			continue
		}
		rule := manifest.DisruptionBudgetOf(pdb)
		if rule == nil || pdb.Spec.MinAvailable == nil || pdb.Spec.MinAvailable.IntVal <= rule.MinAvailableFor(activeVMs) {
			continue
		}
		if patch := manifest.ResizePDBPatch(pdb, activeVMs); patch != nil {
			reason := fmt.Sprintf("requires %d available VMs, but the group has only %d (expected while BOSH replaces one)",
				pdb.Spec.MinAvailable.IntVal, activeVMs)
			scan.add(pdb, reason, resizePDB(pdb.Name, rule.MinAvailableFor(activeVMs), patch))
		}
	}
}

// orphanReason returns why an attachment Pod or helper Pod is orphaned, or "" if it is not, or may belong to a running call. old
// reports whether it exceeds the minimum age.
func (inv inventory) orphanReason(pod *corev1.Pod, old bool) string {
	switch manifest.RoleOf(pod) {
	case manifest.RoleAttachment:
		attachment := manifest.AttachmentPod{Pod: pod}
		if !inv.isVMPresent(attachment) {
			return "its VM " + attachment.VM() + " does not exist"
		}
		if old && attachment.IsGated() && !inv.ownsDisk(attachment) {
			return "orphaned by an interrupted attach_disk"
		}
	case manifest.RoleReboot:
		if old {
			return "orphaned by an interrupted reboot_vm"
		}
	case manifest.RoleFlush:
		if old {
			return "orphaned by an interrupted snapshot_disk"
		}
	}
	return ""
}

const reasonNeverNamed = "orphaned by an interrupted create_vm: set_vm_metadata was never called"
