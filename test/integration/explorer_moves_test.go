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
type move struct {
	name string
	call func(a *arena) []any // method and arguments
	// holds returns why an answer contradicts the cluster in this state, or "". The call's error is among the answers.
	holds func(a *arena, now state, answer director.Response) string
	// forgets are the disks that no call has to keep: those that there are when the director makes this call, and, if it
	// succeeds, those that there are by then.
	forgets func(a *arena) []string
	// deletes tells that the director wants neither the disk nor its copy any more.
	deletes bool
	// harmless is a call beside which every other one ends as if it were alone.
	harmless bool
	// runs makes the call if it is not one of the director's.
	runs func(ctx context.Context, a *arena) director.Response
}

func (m move) is(other move) bool { return m.name == other.name }

// A setting is what the moves of a pair are about, before the first of them.
type setting struct {
	name  string
	begin func(ctx context.Context, a *arena)
	// first are the moves that are held, and second those that cross them: the same ones if there are none.
	first, second []move
	// three are the moves of which any three cross each other.
	three []move
	// slow has what the first call creates wait: that call's time ends, and it undoes what it made. What crosses it goes on.
	slow bool
	// watched is what others do when the first call begins to watch.
	watched func(ctx context.Context, a *arena)
}

func (s setting) seconds() []move {
	if s.second == nil {
		return s.first
	}
	return s.second
}

// The names of the VMs in an arena: the first two exist, and the bystander is nobody's subject.
const (
	vmOne    = "agent-one"
	vmTwo    = "agent-two"
	vmFresh  = "agent-fresh"
	arenaKey = "test/arena"
)

func settings() []setting {
	newDisk := func(ctx context.Context, a *arena) { a.newDisk(ctx) }
	attached := func(ctx context.Context, a *arena) {
		a.newDisk(ctx)
		a.must(ctx, "attach_disk", vmOne, a.disk)
	}
	ofDisk := []move{
		attaching(vmOne), attaching(vmTwo), detaching(), deletingDisk(), resizing(), copying(toBlock), relabeling(), snapshotting(),
		listingDisks(vmOne), deletingVM(vmOne), creatingVM(vmFresh, true), describingDisk(), lookingForDisk(), collecting(),
	}
	return []setting{
		{name: "a detached disk", begin: newDisk, first: ofDisk,
			three: []move{attaching(vmOne), attaching(vmTwo), detaching(), copying(toBlock), deletingDisk()}},
		{name: "an attached disk", begin: attached, first: []move{
			attaching(vmOne), attaching(vmTwo), detaching(), deletingDisk(), resizing(), copying(toBlock), snapshotting(),
			listingDisks(vmOne), deletingVM(vmOne), rebooting(vmOne), lookingForDisk(), collecting(),
		}},
		{name: "a disk whose attachment somebody has told to end", begin: func(ctx context.Context, a *arena) {
			attached(ctx, a)
			Expect(a.annotate(ctx, a.disk+"-attachment", "test/stays", new("yes"))).To(Succeed())
			Expect(cluster.CoreV1().Pods(a.namespace).Delete(ctx, a.disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
		}, watched: func(ctx context.Context, a *arena) { _ = a.annotate(ctx, a.disk+"-attachment", "test/stays", nil) },
			first: []move{detaching(), deletingVM(vmOne)}, second: ofDisk},
		{name: "a copied disk", begin: func(ctx context.Context, a *arena) {
			a.newDisk(ctx)
			a.successor = a.must(ctx, "update_disk", a.disk, 64, toBlock).Text()
		}, first: []move{
			attaching(vmOne), attachingSuccessor(vmTwo), copying(toBlock), relabeling(), resizing(), deletingDisk(), deletingSuccessor(), lookingForDisk(),
		}},
		{name: "a disk whose attachment does not come up in time", begin: newDisk, slow: true, first: []move{attaching(vmOne)}, second: ofDisk},
		{name: "a disk that is not copied in time", begin: newDisk, slow: true, first: []move{copying(toXFS)}, second: append(ofDisk, copying(toXFS))},
		{name: "a disk whose copy was cut short", begin: func(ctx context.Context, a *arena) {
			a.newDisk(ctx)
			a.cutCopy(ctx)
		}, first: []move{copying(toXFS)}, second: []move{copying(toXFS), collecting(), attaching(vmOne), deletingDisk()}},
		{name: "a snapshot", begin: func(ctx context.Context, a *arena) {
			a.newDisk(ctx)
			a.snapshot = a.must(ctx, "snapshot_disk", a.disk, map[string]any{}).Text()
		}, first: []move{snapshotting(), deletingSnapshot(), deletingDisk(), attaching(vmOne), collecting()}},
		{name: "a VM behind a Service, in a group", begin: func(context.Context, *arena) {}, first: []move{
			creatingVM(vmFresh, false), creatingVM(vmOther, false), deletingVM(vmFresh), describingVM(vmFresh), lookingForVM(vmFresh), rebooting(vmFresh),
		}},
	}
}

// vmOther is another VM of the same group, behind the same Service.
const vmOther = "agent-other"

var fine = func(*arena, state, director.Response) string { return "" }

// when returns why unless what it says is so, for answers without an error.
func when(so bool, answer director.Response, why string, about ...any) string {
	if answer.Error != nil || so {
		return ""
	}
	return fmt.Sprintf(why, about...)
}

func abandonsSuccessor(a *arena) []string { return []string{a.successor} }

func attaching(vm string) move {
	return move{
		name: "attach_disk to " + vm, call: func(a *arena) []any { return []any{"attach_disk", vm, a.disk} },
		holds: func(a *arena, now state, answer director.Response) string {
			return when(now.owner(a.disk) == vm, answer, "the disk is not recorded as %s's but %q's", vm, now.owner(a.disk))
		},
		forgets: abandonsSuccessor,
	}
}

func attachingSuccessor(vm string) move {
	return move{
		name: "attach_disk of the successor to " + vm, call: func(a *arena) []any { return []any{"attach_disk", vm, a.successor} },
		holds: func(a *arena, now state, answer director.Response) string {
			return when(now.owner(a.successor) == vm, answer, "the successor is not recorded as %s's", vm)
		},
		forgets: func(a *arena) []string { return []string{a.disk} },
	}
}

func detaching() move {
	const vm = vmOne
	return move{
		name: "detach_disk from " + vm, call: func(a *arena) []any { return []any{"detach_disk", vm, a.disk} },
		holds: func(a *arena, now state, answer director.Response) string {
			return when(now.owner(a.disk) != vm, answer, "the disk is still recorded as %s's", vm)
		},
	}
}

func deletingDisk() move {
	return move{
		name: "delete_disk", call: func(a *arena) []any { return []any{"delete_disk", a.disk} },
		holds: func(a *arena, now state, answer director.Response) string {
			return when(!now.hasDisk(a.disk), answer, "the disk exists")
		},
		forgets: func(a *arena) []string { return []string{a.disk, a.successor} }, deletes: true,
	}
}

func deletingSuccessor() move {
	return move{
		name: "delete_disk of the successor", call: func(a *arena) []any { return []any{"delete_disk", a.successor} },
		holds: func(a *arena, now state, answer director.Response) string {
			return when(!now.hasDisk(a.successor), answer, "the successor exists")
		},
		forgets: func(a *arena) []string { return []string{a.disk, a.successor} }, deletes: true,
	}
}

func resizing() move {
	return move{
		name: "resize_disk", call: func(a *arena) []any { return []any{"resize_disk", a.disk, 128} },
		holds: func(a *arena, now state, answer director.Response) string {
			pvc := now.pvcs[a.disk]
			return when(pvc != nil && pvc.Annotations[manifest.AnnotationSize] == "128", answer, "the disk has another size")
		},
	}
}

// copying is update_disk to another kind of volume.
func copying(properties map[string]any) move {
	return move{
		name: fmt.Sprint("update_disk to ", slices.Collect(maps.Values(properties))), call: func(a *arena) []any { return []any{"update_disk", a.disk, 64, properties} },
		holds: func(_ *arena, now state, answer director.Response) string {
			pvc := now.pvcs[answer.Text()]
			return when(pvc != nil && pvc.DeletionTimestamp == nil && pvc.Labels[manifest.LabelCopy] != manifest.CopyIncomplete, answer,
				"the successor %s is gone, or incomplete", answer.Text())
		},
	}
}

func relabeling() move {
	return move{
		name: "update_disk in place", call: func(a *arena) []any {
			return []any{"update_disk", a.disk, 64, map[string]any{"storage_class": "immediate", "labels": map[string]any{"team": "a"}}}
		},
		// The same disk, or a copy if a resize_disk has made it larger than this call asks for.
		holds: func(_ *arena, now state, answer director.Response) string {
			pvc := now.pvcs[answer.Text()]
			return when(pvc != nil && pvc.Labels["team"] == "a", answer, "the disk has no such label")
		},
		forgets: abandonsSuccessor,
	}
}

func snapshotting() move {
	return move{
		harmless: true,
		name:     "snapshot_disk", call: func(a *arena) []any { return []any{"snapshot_disk", a.disk, map[string]any{}} },
		holds: func(_ *arena, now state, answer director.Response) string {
			return when(slices.Contains(now.snapshots, answer.Text()), answer, "the snapshot %s does not exist", answer.Text())
		},
	}
}

func deletingSnapshot() move {
	return move{
		name: "delete_snapshot", call: func(a *arena) []any { return []any{"delete_snapshot", a.snapshot} },
		holds: func(a *arena, now state, answer director.Response) string {
			return when(!slices.Contains(now.snapshots, a.snapshot), answer, "the snapshot exists")
		},
	}
}

func listingDisks(vm string) move {
	return move{
		harmless: true,
		name:     "get_disks of " + vm, call: func(*arena) []any { return []any{"get_disks", vm} },
		holds: func(_ *arena, now state, answer director.Response) string {
			var listed []string
			if answer.Error == nil {
				Expect(json.Unmarshal(answer.Result, &listed)).To(Succeed())
			}
			slices.Sort(listed)
			return when(slices.Equal(listed, now.disksOf(vm)), answer, "it listed %v, and the VM has %v", listed, now.disksOf(vm))
		},
	}
}

func lookingForDisk() move {
	return move{
		harmless: true,
		name:     "has_disk", call: func(a *arena) []any { return []any{"has_disk", a.disk} },
		holds: func(a *arena, now state, answer director.Response) string {
			return when(string(answer.Result) == fmt.Sprint(now.hasDisk(a.disk)), answer, "it answered %s", answer.Result)
		},
	}
}

func describingDisk() move {
	return move{
		harmless: true,
		name:     "set_disk_metadata", call: func(a *arena) []any { return []any{"set_disk_metadata", a.disk, map[string]any{"job": "web"}} },
		holds: func(a *arena, now state, answer director.Response) string {
			pvc := now.pvcs[a.disk]
			return when(pvc != nil && pvc.Labels["bosh.cloudfoundry.org/job"] == "web", answer, "the disk has no such label")
		},
	}
}

// creatingVM is create_vm of a VM that is to get the disk, or of one behind a Service and in a group.
func creatingVM(vm string, disk bool) move {
	return move{
		name: "create_vm of " + vm, call: func(a *arena) []any {
			agent := strings.TrimPrefix(vm, "agent-")
			if disk {
				return []any{"create_vm", agent, stemcellCID, a.world.vm, onDynamic(), []string{a.disk}, map[string]any{}}
			}
			properties := maps.Clone(a.world.vm)
			maps.Copy(properties, behind(fixed(nil)))
			maps.Copy(properties, oneAway())
			return []any{"create_vm", agent, stemcellCID, properties, onDynamic(), []string{}, inGroup(group)}
		},
		holds: func(_ *arena, now state, answer director.Response) string {
			pod := now.pods[vm]
			return when(pod != nil && pod.DeletionTimestamp == nil && kube.Ready(pod), answer, "the VM is not up")
		},
	}
}

func deletingVM(vm string) move {
	return move{
		name: "delete_vm of " + vm, call: func(*arena) []any { return []any{"delete_vm", vm} },
		holds: func(_ *arena, now state, answer director.Response) string {
			return when(now.pods[vm] == nil && len(now.disksOf(vm)) == 0, answer, "the VM exists, or has disks")
		},
	}
}

func describingVM(vm string) move {
	return move{
		harmless: true,
		name:     "set_vm_metadata of " + vm, call: func(*arena) []any { return []any{"set_vm_metadata", vm, map[string]any{"job": "web"}} },
		holds: func(_ *arena, now state, answer director.Response) string {
			pod := now.pods[vm]
			return when(pod != nil && pod.Labels["bosh.cloudfoundry.org/job"] == "web", answer, "the VM has no such label")
		},
	}
}

func lookingForVM(vm string) move {
	return move{
		harmless: true,
		name:     "has_vm of " + vm, call: func(*arena) []any { return []any{"has_vm", vm} },
		holds: func(_ *arena, now state, answer director.Response) string {
			return when(string(answer.Result) == fmt.Sprint(now.pods[vm] != nil), answer, "it answered %s", answer.Result)
		},
	}
}

func rebooting(vm string) move {
	return move{name: "reboot_vm of " + vm, call: func(*arena) []any { return []any{"reboot_vm", vm} }, holds: fine}
}

// collectGrace is the age from which on what a call has left is an orphan. No call of an arena takes that long, unless it
// waits for one that is held.
const collectGrace = "3s"

// collecting removes orphans.
func collecting() move {
	return move{
		name: "collect", harmless: true, holds: fine, call: func(*arena) []any { return []any{"collect"} },
		runs: func(ctx context.Context, a *arena) director.Response {
			a.world.collect(ctx, director.UUID, "-confirm", "-grace", collectGrace)
			return director.Response{}
		},
	}
}

// state is what is in an arena's namespace at a moment at which no call goes on.
type state struct {
	pods      map[string]*corev1.Pod
	pvcs      map[string]*corev1.PersistentVolumeClaim
	snapshots []string
}

// owner is the VM that the disk's PVC records.
func (s state) owner(disk string) string {
	if pvc := s.pvcs[disk]; pvc != nil {
		return pvc.Labels[manifest.LabelVM]
	}
	return ""
}

func (s state) hasDisk(disk string) bool {
	pvc := s.pvcs[disk]
	return pvc != nil && (pvc.DeletionTimestamp == nil || pvc.Labels[manifest.LabelVM] != "")
}

// complete reports that the disk exists, with its data.
func (s state) complete(disk string) bool {
	pvc := s.pvcs[disk]
	return pvc != nil && pvc.DeletionTimestamp == nil && pvc.Labels[manifest.LabelCopy] != manifest.CopyIncomplete
}

// disksOf are the disks that the VM has, in order.
func (s state) disksOf(vm string) []string {
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
func (s state) writers(disk string) []string {
	writers := map[string]bool{}
	exists := func(vm string) bool { return s.pods[vm] != nil && !kube.Finished(s.pods[vm]) }
	if vm := s.owner(disk); exists(vm) {
		writers[vm] = true
	}
	pod := s.pods[manifest.AttachmentName(disk)]
	if pod != nil && pod.Spec.NodeName != "" && !kube.Finished(pod) && !proven(pod) {
		if vm := pod.Labels[manifest.LabelVM]; exists(vm) {
			writers[vm] = true
		} else if pod.Labels[manifest.LabelRole] == manifest.RoleCopy {
			writers["the copy"] = true
		}
	}
	return slices.Sorted(maps.Keys(writers))
}

// proven reports that an exclusivity check has taken the device away from the attachment's VM.
func proven(attachment *corev1.Pod) bool {
	return slices.ContainsFunc(attachment.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	})
}
