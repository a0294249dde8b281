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

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/test/harness/director"
)

// explorerCall is a call that the explorer can make.
type explorerCall struct {
	name string
	call func(env *explorerTestEnv) []any // method and arguments
	// check returns the reason why the response contradicts this state of the cluster, or "". The response can be an error.
	check func(env *explorerTestEnv, now namespaceState, response director.Response) string
	// deletesDisk means that the director no longer requires the disk after this call.
	deletesDisk bool
	// independent means that this call does not change the result of a concurrent call.
	independent bool
	// repairsAttachments means that this call attaches a disk again if its VM is running, but the disk's attachment Pod does not exist.
	repairsAttachments bool
	// reportsOwner means that the response contains the current owner of the disk, which another call may change.
	reportsOwner bool
	// run replaces a call of a director.
	run func(ctx context.Context, env *explorerTestEnv) director.Response
}

func (c explorerCall) equals(other explorerCall) bool { return c.name == other.name }

// explorerSetup is the state before an interleaving, and the calls to combine in that state.
type explorerSetup struct {
	name    string
	prepare func(ctx context.Context, env *explorerTestEnv)
	// Each of firstCalls is held while one of secondCalls runs. If secondCalls is nil, the explorer uses firstCalls for both.
	firstCalls, secondCalls []explorerCall
	// tripleCalls are also combined in threes.
	tripleCalls []explorerCall
	// slow delays the Pod of the first call, so that the call times out and rolls back. The second call lets the Pod start.
	slow bool
	// lost means that another client deleted the attachment Pod. A disk without one is then not inconsistent: the next call recreates it.
	lost bool
	// onWatch is called when the first call starts a watch. It does something that another client could do.
	onWatch func(ctx context.Context, env *explorerTestEnv)
}

// crossingCalls returns the calls that run while a first call is held.
func (s explorerSetup) crossingCalls() []explorerCall {
	if s.secondCalls == nil {
		return s.firstCalls
	}
	return s.secondCalls
}

// VMs of the explorer. vmOne and vmTwo exist before the calls, vmFresh does not.
const (
	vmOne   = "agent-one"
	vmTwo   = "agent-two"
	vmFresh = "agent-fresh"
)

func explorerSetups() []explorerSetup {
	createDisk := func(ctx context.Context, env *explorerTestEnv) { env.createTestDisk(ctx) }
	createAttachedDisk := func(ctx context.Context, env *explorerTestEnv) {
		env.createTestDisk(ctx)
		env.mustCall(ctx, "attach_disk", vmOne, env.disk)
	}
	diskCalls := []explorerCall{
		attachDiskCall(vmOne), attachDiskCall(vmTwo), detachDiskCall(), deleteDiskCall(), resizeDiskCall(), updateDiskCall(), snapshotDiskCall(),
		getDisksCall(vmOne), deleteVMCall(vmOne), createVMCall(vmFresh, true), setDiskMetadataCall(), hasDiskCall(), collectCall(),
	}
	return []explorerSetup{
		{name: "a detached disk", prepare: createDisk, firstCalls: diskCalls,
			tripleCalls: []explorerCall{attachDiskCall(vmOne), attachDiskCall(vmTwo), detachDiskCall(), updateDiskCall(), deleteDiskCall()}},
		{name: "an attached disk", prepare: createAttachedDisk, firstCalls: []explorerCall{
			attachDiskCall(vmOne), attachDiskCall(vmTwo), detachDiskCall(), deleteDiskCall(), resizeDiskCall(), updateDiskCall(), snapshotDiskCall(),
			getDisksCall(vmOne), deleteVMCall(vmOne), rebootVMCall(vmOne), hasDiskCall(), collectCall(),
		}},
		{name: "a disk with an attachment that is being deleted", prepare: func(ctx context.Context, env *explorerTestEnv) {
			createAttachedDisk(ctx, env)
			Expect(env.annotatePod(ctx, env.disk+"-attachment", "test/stays", new("yes"))).To(Succeed())
			Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, env.disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
		}, onWatch: func(ctx context.Context, env *explorerTestEnv) {
			_ = env.annotatePod(ctx, env.disk+"-attachment", "test/stays", nil)
		},
			firstCalls: []explorerCall{detachDiskCall(), deleteVMCall(vmOne)}, secondCalls: diskCalls},
		{name: "a disk with an attachment that does not start in time", prepare: createDisk, slow: true, firstCalls: []explorerCall{attachDiskCall(vmOne)}, secondCalls: diskCalls},
		{name: "an attached disk with an attachment that was deleted and does not start in time", lost: true, slow: true,
			prepare: func(ctx context.Context, env *explorerTestEnv) {
				createAttachedDisk(ctx, env)
				env.deletePod(ctx, env.disk+"-attachment")
			}, firstCalls: []explorerCall{attachDiskCall(vmOne)}, secondCalls: diskCalls},
		{name: "a snapshot", prepare: func(ctx context.Context, env *explorerTestEnv) {
			env.createTestDisk(ctx)
			env.snapshot = env.mustCall(ctx, "snapshot_disk", env.disk, map[string]any{}).Text()
		}, firstCalls: []explorerCall{snapshotDiskCall(), deleteSnapshotCall(), deleteDiskCall(), attachDiskCall(vmOne), collectCall()}},
		{name: "a VM behind a Service, in a group", prepare: func(context.Context, *explorerTestEnv) {}, firstCalls: []explorerCall{
			createVMCall(vmFresh, false), createVMCall(vmOther, false), deleteVMCall(vmFresh), setVMMetadataCall(vmFresh), hasVMCall(vmFresh), rebootVMCall(vmFresh),
		}},
	}
}

// vmOther is in the same group and behind the same Service as vmFresh.
const vmOther = "agent-other"

var alwaysConsistent = func(*explorerTestEnv, namespaceState, director.Response) string { return "" }

// reasonUnless formats the reason why the response is wrong. It returns "" if ok is true or the response is an error.
func reasonUnless(ok bool, response director.Response, reason string, args ...any) string {
	if response.Error != nil || ok {
		return ""
	}
	return fmt.Sprintf(reason, args...)
}

func attachDiskCall(vm string) explorerCall {
	return explorerCall{
		name: "attach_disk to " + vm, call: func(env *explorerTestEnv) []any { return []any{"attach_disk", vm, env.disk} },
		check: func(env *explorerTestEnv, now namespaceState, response director.Response) string {
			return reasonUnless(now.owner(env.disk) == vm, response, "the disk is not recorded as attached to %s, but to %q", vm, now.owner(env.disk))
		},
	}
}

func detachDiskCall() explorerCall {
	const vm = vmOne
	return explorerCall{
		name: "detach_disk from " + vm, call: func(env *explorerTestEnv) []any { return []any{"detach_disk", vm, env.disk} },
		check: func(env *explorerTestEnv, now namespaceState, response director.Response) string {
			return reasonUnless(now.owner(env.disk) != vm, response, "the disk is still recorded as attached to %s", vm)
		},
	}
}

func deleteDiskCall() explorerCall {
	return explorerCall{
		name: "delete_disk", call: func(env *explorerTestEnv) []any { return []any{"delete_disk", env.disk} },
		check: func(env *explorerTestEnv, now namespaceState, response director.Response) string {
			return reasonUnless(!now.hasDisk(env.disk), response, "the disk still exists")
		},
		deletesDisk: true,
	}
}

func resizeDiskCall() explorerCall {
	return explorerCall{
		name: "resize_disk", call: func(env *explorerTestEnv) []any { return []any{"resize_disk", env.disk, 128} },
		check: func(env *explorerTestEnv, now namespaceState, response director.Response) string {
			pvc := now.pvcs[env.disk]
			return reasonUnless(pvc != nil && pvc.Annotations[manifest.AnnotationSize] == "128", response, "the disk has another size")
		},
	}
}

func updateDiskCall() explorerCall {
	return explorerCall{
		name: "update_disk", call: func(env *explorerTestEnv) []any {
			return []any{"update_disk", env.disk, 64, map[string]any{"storage_class": "immediate", "labels": map[string]any{"team": "a"}}}
		},
		check: func(env *explorerTestEnv, now namespaceState, response director.Response) string {
			pvc := now.pvcs[env.disk]
			return reasonUnless(pvc != nil && pvc.Labels["team"] == "a", response, "the disk has no such label")
		},
	}
}

func snapshotDiskCall() explorerCall {
	return explorerCall{
		independent: true,
		name:        "snapshot_disk", call: func(env *explorerTestEnv) []any { return []any{"snapshot_disk", env.disk, map[string]any{}} },
		check: func(_ *explorerTestEnv, now namespaceState, response director.Response) string {
			return reasonUnless(slices.Contains(now.snapshots, response.Text()), response, "the snapshot %s does not exist", response.Text())
		},
	}
}

func deleteSnapshotCall() explorerCall {
	return explorerCall{
		name: "delete_snapshot", call: func(env *explorerTestEnv) []any { return []any{"delete_snapshot", env.snapshot} },
		check: func(env *explorerTestEnv, now namespaceState, response director.Response) string {
			return reasonUnless(!slices.Contains(now.snapshots, env.snapshot), response, "the snapshot still exists")
		},
	}
}

func getDisksCall(vm string) explorerCall {
	return explorerCall{
		independent: true, repairsAttachments: true, reportsOwner: true,
		name: "get_disks of " + vm, call: func(*explorerTestEnv) []any { return []any{"get_disks", vm} },
		check: func(_ *explorerTestEnv, now namespaceState, response director.Response) string {
			var listed []string
			if response.Error == nil {
				Expect(json.Unmarshal(response.Result, &listed)).To(Succeed())
			}
			slices.Sort(listed)
			return reasonUnless(slices.Equal(listed, now.disksOf(vm)), response, "the result is %v, but the VM has %v", listed, now.disksOf(vm))
		},
	}
}

func hasDiskCall() explorerCall {
	return explorerCall{
		independent: true,
		name:        "has_disk", call: func(env *explorerTestEnv) []any { return []any{"has_disk", env.disk} },
		check: func(env *explorerTestEnv, now namespaceState, response director.Response) string {
			return reasonUnless(string(response.Result) == fmt.Sprint(now.hasDisk(env.disk)), response, "the result is %s", response.Result)
		},
	}
}

func setDiskMetadataCall() explorerCall {
	return explorerCall{
		independent: true,
		name:        "set_disk_metadata", call: func(env *explorerTestEnv) []any {
			return []any{"set_disk_metadata", env.disk, map[string]any{"job": "web"}}
		},
		check: func(env *explorerTestEnv, now namespaceState, response director.Response) string {
			pvc := now.pvcs[env.disk]
			return reasonUnless(pvc != nil && pvc.Labels["bosh.cloudfoundry.org/job"] == "web", response, "the disk has no such label")
		},
	}
}

// createVMCall is create_vm of a VM for the disk, or of a VM behind a Service and in a group.
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
		check: func(_ *explorerTestEnv, now namespaceState, response director.Response) string {
			pod := now.pods[vm]
			return reasonUnless(pod != nil && pod.DeletionTimestamp == nil && kube.IsReady(pod), response, "the VM is not running")
		},
	}
}

func deleteVMCall(vm string) explorerCall {
	return explorerCall{
		name: "delete_vm of " + vm, call: func(*explorerTestEnv) []any { return []any{"delete_vm", vm} },
		check: func(_ *explorerTestEnv, now namespaceState, response director.Response) string {
			return reasonUnless(now.pods[vm] == nil && len(now.disksOf(vm)) == 0, response, "the VM still exists, or has disks")
		},
	}
}

func setVMMetadataCall(vm string) explorerCall {
	return explorerCall{
		independent: true,
		name:        "set_vm_metadata of " + vm, call: func(*explorerTestEnv) []any { return []any{"set_vm_metadata", vm, map[string]any{"job": "web"}} },
		check: func(_ *explorerTestEnv, now namespaceState, response director.Response) string {
			pod := now.pods[vm]
			return reasonUnless(pod != nil && pod.Labels["bosh.cloudfoundry.org/job"] == "web", response, "the VM has no such label")
		},
	}
}

func hasVMCall(vm string) explorerCall {
	return explorerCall{
		independent: true,
		name:        "has_vm of " + vm, call: func(*explorerTestEnv) []any { return []any{"has_vm", vm} },
		check: func(_ *explorerTestEnv, now namespaceState, response director.Response) string {
			return reasonUnless(string(response.Result) == fmt.Sprint(now.pods[vm] != nil), response, "the result is %s", response.Result)
		},
	}
}

func rebootVMCall(vm string) explorerCall {
	return explorerCall{name: "reboot_vm of " + vm, call: func(*explorerTestEnv) []any { return []any{"reboot_vm", vm} }, check: alwaysConsistent}
}

// collectGrace is the age at which an object of a call counts as orphaned. No call of the explorer takes as long.
const collectGrace = "1m"

// collectCall is a garbage collection.
func collectCall() explorerCall {
	return explorerCall{
		name: "collect", independent: true, repairsAttachments: true, check: alwaysConsistent, call: func(*explorerTestEnv) []any { return []any{"collect"} },
		run: func(ctx context.Context, env *explorerTestEnv) director.Response {
			env.testEnv.runCollect(ctx, director.UUID, "-confirm", "-min-age", collectGrace)
			return director.Response{}
		},
	}
}

// namespaceState is the content of the namespace at a moment when no call makes progress.
type namespaceState struct {
	pods      map[string]*corev1.Pod
	pvcs      map[string]*corev1.PersistentVolumeClaim
	snapshots []string
}

// owner returns the VM in the owner record of the disk.
func (s namespaceState) owner(disk string) string {
	if pvc := s.pvcs[disk]; pvc != nil {
		return pvc.Labels[manifest.LabelVM]
	}
	return ""
}

// hasDisk reports whether the disk exists for the director: a PVC that is being deleted still counts while a VM has the disk.
func (s namespaceState) hasDisk(disk string) bool {
	pvc := s.pvcs[disk]
	return pvc != nil && (pvc.DeletionTimestamp == nil || pvc.Labels[manifest.LabelVM] != "")
}

// disksOf returns the disks of the VM, sorted.
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

// writers returns the VMs that can write to the disk, according to its owner record and to the Pod that has the disk open.
func (s namespaceState) writers(disk string) []string {
	writers := map[string]bool{}
	exists := func(vm string) bool { return s.pods[vm] != nil && !kube.IsFinished(s.pods[vm]) }
	if vm := s.owner(disk); exists(vm) {
		writers[vm] = true
	}
	pod := s.pods[manifest.AttachmentName(disk)]
	if pod != nil && pod.Spec.NodeName != "" && !kube.IsFinished(pod) && !passedExclusivityCheck(pod) {
		if vm := pod.Labels[manifest.LabelVM]; exists(vm) {
			writers[vm] = true
		}
	}
	return slices.Sorted(maps.Keys(writers))
}

// passedExclusivityCheck reports whether an exclusivity check removed the device from the VM.
func passedExclusivityCheck(attachment *corev1.Pod) bool {
	return slices.ContainsFunc(attachment.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	})
}
