package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/director"
)

// A move is a call in the explorer's table. A new method needs one row.
type explorerCall struct {
	name string
	call func(env *explorerTestEnv) []any // method and arguments
	// check returns why an answer contradicts the cluster in this state, or "". The call's error is among the answers.
	check func(env *explorerTestEnv, now namespaceState, answer director.Response) string
	// releasedDisks are the disks that no call has to keep: those that there are when the director makes this call, and, if it
	// succeeds, those that there are by then.
	releasedDisks func(env *explorerTestEnv) []string
	// deletesDisk tells that the director wants neither the disk nor its copy any more.
	deletesDisk bool
	// independent is a call beside which every other one ends as if it were alone.
	independent bool
	// run makes the call if it is not one of the director's.
	run func(ctx context.Context, env *explorerTestEnv) director.Response
}

func (c explorerCall) equals(other explorerCall) bool { return c.name == other.name }

// A setting is what the moves of a pair are about, before the first of them.
type explorerSetup struct {
	name    string
	prepare func(ctx context.Context, env *explorerTestEnv)
	// firstCalls are the moves that are held, and second those that cross them: the same ones if there are none.
	firstCalls, secondCalls []explorerCall
	// tripleCalls are the moves of which any three cross each other.
	tripleCalls []explorerCall
	// slow has what the first call creates wait: that call's time ends, and it undoes what it made. What crosses it goes on.
	slow bool
	// onWatch is what others do when the first call begins to watch.
	onWatch func(ctx context.Context, env *explorerTestEnv)
}

func (s explorerSetup) crossingCalls() []explorerCall {
	if s.secondCalls == nil {
		return s.firstCalls
	}
	return s.secondCalls
}

// The names of the VMs in an arena: the first two exist, and the bystander is nobody's subject.
const (
	vmOne       = "agent-one"
	vmTwo       = "agent-two"
	vmFresh     = "agent-fresh"
	explorerKey = "test/arena"
)

func explorerSetups() []explorerSetup {
	createDisk := func(ctx context.Context, env *explorerTestEnv) { env.createTestDisk(ctx) }
	createAttachedDisk := func(ctx context.Context, env *explorerTestEnv) {
		env.createTestDisk(ctx)
		env.mustCall(ctx, "attach_disk", vmOne, env.disk)
	}
	diskCalls := []explorerCall{
		attachDiskCall(vmOne), attachDiskCall(vmTwo), detachDiskCall(), deleteDiskCall(), resizeDiskCall(), updateDiskCall(toBlock), updateDiskInPlaceCall(), snapshotDiskCall(),
		getDisksCall(vmOne), deleteVMCall(vmOne), createVMCall(vmFresh, true), setDiskMetadataCall(), hasDiskCall(), collectCall(),
	}
	return []explorerSetup{
		{name: "a detached disk", prepare: createDisk, firstCalls: diskCalls,
			tripleCalls: []explorerCall{attachDiskCall(vmOne), attachDiskCall(vmTwo), detachDiskCall(), updateDiskCall(toBlock), deleteDiskCall()}},
		{name: "an attached disk", prepare: createAttachedDisk, firstCalls: []explorerCall{
			attachDiskCall(vmOne), attachDiskCall(vmTwo), detachDiskCall(), deleteDiskCall(), resizeDiskCall(), updateDiskCall(toBlock), snapshotDiskCall(),
			getDisksCall(vmOne), deleteVMCall(vmOne), rebootVMCall(vmOne), hasDiskCall(), collectCall(),
		}},
		{name: "a disk whose attachment somebody has told to end", prepare: func(ctx context.Context, env *explorerTestEnv) {
			createAttachedDisk(ctx, env)
			Expect(env.annotatePod(ctx, env.disk+"-attachment", "test/stays", new("yes"))).To(Succeed())
			Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, env.disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
		}, onWatch: func(ctx context.Context, env *explorerTestEnv) {
			_ = env.annotatePod(ctx, env.disk+"-attachment", "test/stays", nil)
		},
			firstCalls: []explorerCall{detachDiskCall(), deleteVMCall(vmOne)}, secondCalls: diskCalls},
		{name: "a copied disk", prepare: func(ctx context.Context, env *explorerTestEnv) {
			env.createTestDisk(ctx)
			env.successor = env.mustCall(ctx, "update_disk", env.disk, 64, toBlock).Text()
		}, firstCalls: []explorerCall{
			attachDiskCall(vmOne), attachSuccessorCall(vmTwo), updateDiskCall(toBlock), updateDiskInPlaceCall(), resizeDiskCall(), deleteDiskCall(), deleteSuccessorCall(), hasDiskCall(),
		}},
		{name: "a disk whose attachment does not come up in time", prepare: createDisk, slow: true, firstCalls: []explorerCall{attachDiskCall(vmOne)}, secondCalls: diskCalls},
		{name: "a disk that is not copied in time", prepare: createDisk, slow: true, firstCalls: []explorerCall{updateDiskCall(toXFS)}, secondCalls: append(diskCalls, updateDiskCall(toXFS))},
		{name: "a disk whose copy was cut short", prepare: func(ctx context.Context, env *explorerTestEnv) {
			env.createTestDisk(ctx)
			env.createInterruptedCopy(ctx)
		}, firstCalls: []explorerCall{updateDiskCall(toXFS)}, secondCalls: []explorerCall{updateDiskCall(toXFS), collectCall(), attachDiskCall(vmOne), deleteDiskCall()}},
		{name: "a snapshot", prepare: func(ctx context.Context, env *explorerTestEnv) {
			env.createTestDisk(ctx)
			env.snapshot = env.mustCall(ctx, "snapshot_disk", env.disk, map[string]any{}).Text()
		}, firstCalls: []explorerCall{snapshotDiskCall(), deleteSnapshotCall(), deleteDiskCall(), attachDiskCall(vmOne), collectCall()}},
		{name: "a VM behind a Service, in a group", prepare: func(context.Context, *explorerTestEnv) {}, firstCalls: []explorerCall{
			createVMCall(vmFresh, false), createVMCall(vmOther, false), deleteVMCall(vmFresh), setVMMetadataCall(vmFresh), hasVMCall(vmFresh), rebootVMCall(vmFresh),
		}},
	}
}

// vmOther is another VM of the same group, behind the same Service.
const vmOther = "agent-other"

var alwaysConsistent = func(*explorerTestEnv, namespaceState, director.Response) string { return "" }

// reasonUnless returns why unless what it says is so, for answers without an error.
func reasonUnless(ok bool, answer director.Response, why string, args ...any) string {
	if answer.Error != nil || ok {
		return ""
	}
	return fmt.Sprintf(why, args...)
}

func releaseSuccessor(env *explorerTestEnv) []string { return []string{env.successor} }

func attachDiskCall(vm string) explorerCall {
	return explorerCall{
		name: "attach_disk to " + vm, call: func(env *explorerTestEnv) []any { return []any{"attach_disk", vm, env.disk} },
		check: func(env *explorerTestEnv, now namespaceState, answer director.Response) string {
			return reasonUnless(now.owner(env.disk) == vm, answer, "the disk is not recorded as %s's but %q's", vm, now.owner(env.disk))
		},
		releasedDisks: releaseSuccessor,
	}
}

func attachSuccessorCall(vm string) explorerCall {
	return explorerCall{
		name: "attach_disk of the successor to " + vm, call: func(env *explorerTestEnv) []any { return []any{"attach_disk", vm, env.successor} },
		check: func(env *explorerTestEnv, now namespaceState, answer director.Response) string {
			return reasonUnless(now.owner(env.successor) == vm, answer, "the successor is not recorded as %s's", vm)
		},
		releasedDisks: func(env *explorerTestEnv) []string { return []string{env.disk} },
	}
}

func detachDiskCall() explorerCall {
	const vm = vmOne
	return explorerCall{
		name: "detach_disk from " + vm, call: func(env *explorerTestEnv) []any { return []any{"detach_disk", vm, env.disk} },
		check: func(env *explorerTestEnv, now namespaceState, answer director.Response) string {
			return reasonUnless(now.owner(env.disk) != vm, answer, "the disk is still recorded as %s's", vm)
		},
	}
}

func deleteDiskCall() explorerCall {
	return explorerCall{
		name: "delete_disk", call: func(env *explorerTestEnv) []any { return []any{"delete_disk", env.disk} },
		check: func(env *explorerTestEnv, now namespaceState, answer director.Response) string {
			return reasonUnless(!now.hasDisk(env.disk), answer, "the disk exists")
		},
		releasedDisks: func(env *explorerTestEnv) []string { return []string{env.disk, env.successor} }, deletesDisk: true,
	}
}

func deleteSuccessorCall() explorerCall {
	return explorerCall{
		name: "delete_disk of the successor", call: func(env *explorerTestEnv) []any { return []any{"delete_disk", env.successor} },
		check: func(env *explorerTestEnv, now namespaceState, answer director.Response) string {
			return reasonUnless(!now.hasDisk(env.successor), answer, "the successor exists")
		},
		releasedDisks: func(env *explorerTestEnv) []string { return []string{env.disk, env.successor} }, deletesDisk: true,
	}
}

func resizeDiskCall() explorerCall {
	return explorerCall{
		name: "resize_disk", call: func(env *explorerTestEnv) []any { return []any{"resize_disk", env.disk, 128} },
		check: func(env *explorerTestEnv, now namespaceState, answer director.Response) string {
			pvc := now.pvcs[env.disk]
			return reasonUnless(pvc != nil && pvc.Annotations[manifest.AnnotationSize] == "128", answer, "the disk has another size")
		},
	}
}

// updateDiskCall is update_disk to another kind of volume.
func updateDiskCall(properties map[string]any) explorerCall {
	return explorerCall{
		name: fmt.Sprint("update_disk to ", slices.Collect(maps.Values(properties))), call: func(env *explorerTestEnv) []any { return []any{"update_disk", env.disk, 64, properties} },
		check: func(_ *explorerTestEnv, now namespaceState, answer director.Response) string {
			pvc := now.pvcs[answer.Text()]
			return reasonUnless(pvc != nil && pvc.DeletionTimestamp == nil && pvc.Labels[manifest.LabelCopy] != manifest.CopyIncomplete, answer,
				"the successor %s is gone, or incomplete", answer.Text())
		},
	}
}

func updateDiskInPlaceCall() explorerCall {
	return explorerCall{
		name: "update_disk in place", call: func(env *explorerTestEnv) []any {
			return []any{"update_disk", env.disk, 64, map[string]any{"storage_class": "immediate", "labels": map[string]any{"team": "a"}}}
		},
		// The same disk, or a copy if a resize_disk has made it larger than this call asks for.
		check: func(_ *explorerTestEnv, now namespaceState, answer director.Response) string {
			pvc := now.pvcs[answer.Text()]
			return reasonUnless(pvc != nil && pvc.Labels["team"] == "a", answer, "the disk has no such label")
		},
		releasedDisks: releaseSuccessor,
	}
}

func snapshotDiskCall() explorerCall {
	return explorerCall{
		independent: true,
		name:        "snapshot_disk", call: func(env *explorerTestEnv) []any { return []any{"snapshot_disk", env.disk, map[string]any{}} },
		check: func(_ *explorerTestEnv, now namespaceState, answer director.Response) string {
			return reasonUnless(slices.Contains(now.snapshots, answer.Text()), answer, "the snapshot %s does not exist", answer.Text())
		},
	}
}

func deleteSnapshotCall() explorerCall {
	return explorerCall{
		name: "delete_snapshot", call: func(env *explorerTestEnv) []any { return []any{"delete_snapshot", env.snapshot} },
		check: func(env *explorerTestEnv, now namespaceState, answer director.Response) string {
			return reasonUnless(!slices.Contains(now.snapshots, env.snapshot), answer, "the snapshot exists")
		},
	}
}

func getDisksCall(vm string) explorerCall {
	return explorerCall{
		independent: true,
		name:        "get_disks of " + vm, call: func(*explorerTestEnv) []any { return []any{"get_disks", vm} },
		check: func(_ *explorerTestEnv, now namespaceState, answer director.Response) string {
			var listed []string
			if answer.Error == nil {
				Expect(json.Unmarshal(answer.Result, &listed)).To(Succeed())
			}
			slices.Sort(listed)
			return reasonUnless(slices.Equal(listed, now.disksOf(vm)), answer, "it listed %v, and the VM has %v", listed, now.disksOf(vm))
		},
	}
}

func hasDiskCall() explorerCall {
	return explorerCall{
		independent: true,
		name:        "has_disk", call: func(env *explorerTestEnv) []any { return []any{"has_disk", env.disk} },
		check: func(env *explorerTestEnv, now namespaceState, answer director.Response) string {
			return reasonUnless(string(answer.Result) == fmt.Sprint(now.hasDisk(env.disk)), answer, "it answered %s", answer.Result)
		},
	}
}

func setDiskMetadataCall() explorerCall {
	return explorerCall{
		independent: true,
		name:        "set_disk_metadata", call: func(env *explorerTestEnv) []any {
			return []any{"set_disk_metadata", env.disk, map[string]any{"job": "web"}}
		},
		check: func(env *explorerTestEnv, now namespaceState, answer director.Response) string {
			pvc := now.pvcs[env.disk]
			return reasonUnless(pvc != nil && pvc.Labels["bosh.cloudfoundry.org/job"] == "web", answer, "the disk has no such label")
		},
	}
}

// createVMCall is create_vm of a VM that is to get the disk, or of one behind a Service and in a group.
func createVMCall(vm string, disk bool) explorerCall {
	return explorerCall{
		name: "create_vm of " + vm, call: func(env *explorerTestEnv) []any {
			agent := strings.TrimPrefix(vm, "agent-")
			if disk {
				return []any{"create_vm", agent, stemcellCID, env.testEnv.vmProperties, dynamicNetwork(), []string{env.disk}, map[string]any{}}
			}
			properties := maps.Clone(env.testEnv.vmProperties)
			maps.Copy(properties, servicesProperties(namedService(nil)))
			maps.Copy(properties, maxOneUnavailable())
			return []any{"create_vm", agent, stemcellCID, properties, dynamicNetwork(), []string{}, groupEnv(groupName)}
		},
		check: func(_ *explorerTestEnv, now namespaceState, answer director.Response) string {
			pod := now.pods[vm]
			return reasonUnless(pod != nil && pod.DeletionTimestamp == nil && kube.Ready(pod), answer, "the VM is not up")
		},
	}
}

func deleteVMCall(vm string) explorerCall {
	return explorerCall{
		name: "delete_vm of " + vm, call: func(*explorerTestEnv) []any { return []any{"delete_vm", vm} },
		check: func(_ *explorerTestEnv, now namespaceState, answer director.Response) string {
			return reasonUnless(now.pods[vm] == nil && len(now.disksOf(vm)) == 0, answer, "the VM exists, or has disks")
		},
	}
}

func setVMMetadataCall(vm string) explorerCall {
	return explorerCall{
		independent: true,
		name:        "set_vm_metadata of " + vm, call: func(*explorerTestEnv) []any { return []any{"set_vm_metadata", vm, map[string]any{"job": "web"}} },
		check: func(_ *explorerTestEnv, now namespaceState, answer director.Response) string {
			pod := now.pods[vm]
			return reasonUnless(pod != nil && pod.Labels["bosh.cloudfoundry.org/job"] == "web", answer, "the VM has no such label")
		},
	}
}

func hasVMCall(vm string) explorerCall {
	return explorerCall{
		independent: true,
		name:        "has_vm of " + vm, call: func(*explorerTestEnv) []any { return []any{"has_vm", vm} },
		check: func(_ *explorerTestEnv, now namespaceState, answer director.Response) string {
			return reasonUnless(string(answer.Result) == fmt.Sprint(now.pods[vm] != nil), answer, "it answered %s", answer.Result)
		},
	}
}

func rebootVMCall(vm string) explorerCall {
	return explorerCall{name: "reboot_vm of " + vm, call: func(*explorerTestEnv) []any { return []any{"reboot_vm", vm} }, check: alwaysConsistent}
}

// collectGrace is the age from which on what a call has left is an orphan. No call of an arena takes that long, unless it
// waits for one that is held.
const collectGrace = "3s"

// collectCall removes orphans.
func collectCall() explorerCall {
	return explorerCall{
		name: "collect", independent: true, check: alwaysConsistent, call: func(*explorerTestEnv) []any { return []any{"collect"} },
		run: func(ctx context.Context, env *explorerTestEnv) director.Response {
			env.testEnv.runCollect(ctx, director.UUID, "-confirm", "-grace", collectGrace)
			return director.Response{}
		},
	}
}

// namespaceState is what is in an arena's namespace at a moment at which no call goes on.
type namespaceState struct {
	pods      map[string]*corev1.Pod
	pvcs      map[string]*corev1.PersistentVolumeClaim
	snapshots []string
}

// owner is the VM that the disk's PVC records.
func (s namespaceState) owner(disk string) string {
	if pvc := s.pvcs[disk]; pvc != nil {
		return pvc.Labels[manifest.LabelVM]
	}
	return ""
}

func (s namespaceState) hasDisk(disk string) bool {
	pvc := s.pvcs[disk]
	return pvc != nil && (pvc.DeletionTimestamp == nil || pvc.Labels[manifest.LabelVM] != "")
}

// isComplete reports that the disk exists, with its data.
func (s namespaceState) isComplete(disk string) bool {
	pvc := s.pvcs[disk]
	return pvc != nil && pvc.DeletionTimestamp == nil && pvc.Labels[manifest.LabelCopy] != manifest.CopyIncomplete
}

// disksOf are the disks that the VM has, in order.
func (s namespaceState) disksOf(vm string) []string {
	var disks []string
	for name, pvc := range s.pvcs {
		if pvc.Labels[manifest.LabelRole] == manifest.RoleDisk && pvc.Labels[manifest.LabelVM] == vm {
			disks = append(disks, name)
		}
	}
	slices.Sort(disks)
	return disks
}

// writers are those that can write to the disk: the VM that its PVC records, and the VM or copy for which a Pod has it open.
func (s namespaceState) writers(disk string) []string {
	writers := map[string]bool{}
	exists := func(vm string) bool { return s.pods[vm] != nil && !kube.Finished(s.pods[vm]) }
	if vm := s.owner(disk); exists(vm) {
		writers[vm] = true
	}
	pod := s.pods[manifest.AttachmentName(disk)]
	if pod != nil && pod.Spec.NodeName != "" && !kube.Finished(pod) && !passedExclusivityCheck(pod) {
		if vm := pod.Labels[manifest.LabelVM]; exists(vm) {
			writers[vm] = true
		} else if pod.Labels[manifest.LabelRole] == manifest.RoleCopy {
			writers["the copy"] = true
		}
	}
	return slices.Sorted(maps.Keys(writers))
}

// passedExclusivityCheck reports that an exclusivity check has taken the device away from the attachment's VM.
func passedExclusivityCheck(attachment *corev1.Pod) bool {
	return slices.ContainsFunc(attachment.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	})
}
