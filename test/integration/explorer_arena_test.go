package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/apiproxy"
	"bosh-kubernetes-cpi/test/director"
)

// arena is a world in which calls cross each other. Each of the crossing calls has a proxy of its own, which can hold it at
// any of its requests.
type arena struct {
	world // its calls are never held
	sides []side
	node  string // of the first VM alone

	disk, successor, snapshot string                 // what the moves are about
	kept                      []string               // disks that no call may delete
	deleted                   bool                   // the director wants neither the disk nor its copy any more
	first                     chan director.Response // of the first call, which has ended if there is one
	underWay                  move                   // the first call, as long as it is: it may abandon a copy that is returned meanwhile
	abandoned                 bool                   // a call that has succeeded while the first one was under way may have abandoned the copy
	bystander                 string
	others                    []string // what is in the namespace before a setting begins
}

// side is a director with a proxy of its own.
type side struct {
	*director.Director
	proxy *apiproxy.Proxy
}

// arenaTimeouts are short: a call that waits for one that is held gives up soon.
var arenaTimeouts = map[string]any{
	"create_vm": "10s", "attach_disk": "10s", "detach_disk": "10s", "delete_vm": "10s", "update_disk": "10s", "other": "10s", "request": "8s",
}

// newArena is an arena for as many crossing calls. done closes its proxies.
func newArena(ctx context.Context, sides int) (a *arena, done func()) {
	var proxies []*apiproxy.Proxy
	for range sides + 1 {
		proxy, err := apiproxy.NewStrict(plane.Kubeconfig("admin"))
		Expect(err).NotTo(HaveOccurred())
		proxies = append(proxies, proxy)
	}
	a = &arena{world: newWorldBehind(ctx, proxies[0])}
	a.Director = a.with("timeouts", arenaTimeouts)
	for i, proxy := range proxies[1:] {
		proxy.As(a.proxy.Token())
		kubeconfig := fmt.Sprintf("%s-%d.kubeconfig", strings.TrimSuffix(a.Config, ".json"), i)
		config := fmt.Sprintf("%s-%d.json", strings.TrimSuffix(a.Config, ".json"), i)
		Expect(proxy.Kubeconfig(kubeconfig, a.namespace)).To(Succeed())
		Expect(director.WriteConfig(config, kubeconfig, a.namespace, map[string]any{"timeouts": arenaTimeouts})).To(Succeed())
		a.sides = append(a.sides, side{Director: &director.Director{CPI: program, Config: config}, proxy: proxy})
	}
	a.node = "node-" + strings.TrimPrefix(a.namespace, "world-")
	bringNode(ctx, a.node)
	bystander := a.createNamed(ctx, "bystander")
	a.must(ctx, "attach_disk", bystander, a.createDisk(ctx))
	a.settle(ctx)
	return a, func() {
		for _, proxy := range proxies {
			proxy.Close()
		}
	}
}

// settle brings the arena's own VMs back, and notes what is there.
func (a *arena) settle(ctx context.Context) {
	for _, vm := range []string{vmOne, vmTwo} {
		pod := orNil(cluster.CoreV1().Pods(a.namespace).Get(ctx, vm, metav1.GetOptions{}))
		if pod == nil || pod.DeletionTimestamp != nil {
			a.repeats(ctx, "VMNotFound", "delete_vm", vm)
			a.createNamed(ctx, strings.TrimPrefix(vm, "agent-"))
			Expect(a.annotate(ctx, vm, "test/reboots", new("yes"))).To(Succeed())
		}
	}
	a.disk, a.successor, a.snapshot, a.kept, a.deleted, a.abandoned = "", "", "", nil, false, false
	a.others, a.bystander = a.inNamespace(ctx), a.ofBystander(a.now(ctx))
}

// createNamed creates a VM that the director knows: it names each VM that create_vm has returned.
func (a *arena) createNamed(ctx context.Context, agent string) string {
	vm := "agent-" + agent
	properties := maps.Clone(a.world.vm)
	if vm == vmOne {
		maps.Copy(properties, on(a.node))
	}
	a.must(ctx, "create_vm", agent, stemcellCID, properties, onDynamic(), []string{}, map[string]any{})
	a.must(ctx, "set_vm_metadata", vm, map[string]any{"job": agent})
	return vm
}

// newDisk makes the disk that the moves are about. It has a volume that any node reaches.
func (a *arena) newDisk(ctx context.Context) {
	a.disk = a.must(ctx, "create_disk", 64, map[string]any{"storage_class": "immediate"}, nil).Text()
	a.kept = []string{a.disk}
	Eventually(func() corev1.PersistentVolumeClaimPhase { return a.claim(ctx, a.disk).Status.Phase }).WithContext(ctx).
		WithPolling(20 * time.Millisecond).Should(Equal(corev1.ClaimBound))
}

// cutCopy has a killed update_disk leave a copy that is old enough to be an orphan.
func (a *arena) cutCopy(ctx context.Context) {
	calling, cut := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = a.Call(calling, "update_disk", a.disk, 64, toXFS)
	}()
	a.copyRuns(ctx, a.disk)
	cut()
	<-ended
	Eventually(func() []string { return a.collect(ctx, director.UUID, "-grace", collectGrace) }).WithContext(ctx).
		Should(ContainElement(ContainSubstring(a.disk + "-attachment")))
}

// now is the state of the arena.
func (a *arena) now(ctx context.Context) state {
	s := state{pods: map[string]*corev1.Pod{}, pvcs: map[string]*corev1.PersistentVolumeClaim{}, snapshots: a.snapshots(ctx)}
	pvcs, err := cluster.CoreV1().PersistentVolumeClaims(a.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for i := range pvcs.Items {
		s.pvcs[pvcs.Items[i].Name] = &pvcs.Items[i]
	}
	pods, err := cluster.CoreV1().Pods(a.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for i := range pods.Items {
		s.pods[pods.Items[i].Name] = &pods.Items[i]
	}
	return s
}

// inNamespace are all objects that calls make, in order.
func (a *arena) inNamespace(ctx context.Context) []string {
	all := a.objects(ctx)
	for _, snapshot := range a.snapshots(ctx) {
		all = append(all, "VolumeSnapshot/"+snapshot)
	}
	slices.Sort(all)
	return all
}

// ofBystander is what no call may change.
func (a *arena) ofBystander(now state) string {
	var facts []string
	for name, pod := range now.pods {
		if name == "agent-bystander" || pod.Labels[manifest.LabelVM] == "agent-bystander" {
			facts = append(facts, fmt.Sprint(name, pod.UID, pod.Status.PodIP, pod.DeletionTimestamp, pod.Labels, pod.Annotations))
		}
	}
	for name, pvc := range now.pvcs {
		if pvc.Labels[manifest.LabelVM] == "agent-bystander" {
			facts = append(facts, fmt.Sprint(name, pvc.UID, pvc.Labels, pvc.Annotations, pvc.DeletionTimestamp))
		}
	}
	slices.Sort(facts)
	return fmt.Sprint(facts)
}

// violations are what must not be in this state, whatever calls are under way.
func (a *arena) violations(now state) (found []string) {
	for disk := range now.pvcs {
		if writers := now.writers(disk); len(writers) > 1 {
			found = append(found, fmt.Sprintf("disk %s can be written to by %v", disk, writers))
		}
	}
	for _, disk := range a.kept {
		if !now.complete(disk) {
			found = append(found, fmt.Sprintf("disk %s is gone or incomplete: the director knows it", disk))
		}
	}
	if a.disk != "" && !a.deleted && !now.complete(a.disk) && !now.complete(a.successor) {
		found = append(found, "the data is lost: neither the disk nor its copy is there")
	}
	if is := a.ofBystander(now); is != a.bystander {
		found = append(found, "the bystander has changed: "+is+", before: "+a.bystander)
	}
	return found
}

// contradictions are what must not be in this state once no call is under way, and nobody else has changed anything.
func (a *arena) contradictions(now state) (found []string) {
	for name, pvc := range now.pvcs {
		owner, ok := manifest.DiskOwnerOf(pvc)
		pod := now.pods[manifest.AttachmentName(name)]
		switch {
		case pvc.Labels[manifest.LabelRole] != manifest.RoleDisk:
			continue
		case !ok:
			found = append(found, fmt.Sprintf("the owner record of disk %s is damaged: %v", name, owner))
		case owner.VM != "" && now.pods[owner.VM] != nil && (pod == nil || pod.UID != owner.Pod):
			found = append(found, fmt.Sprintf("disk %s is recorded as attached to %s, and has no attachment", name, owner.VM))
		case owner.VM == "" && pod != nil && pod.DeletionTimestamp == nil && pod.Labels[manifest.LabelRole] == manifest.RoleAttachment:
			found = append(found, fmt.Sprintf("disk %s has an attachment, and is not recorded as attached", name))
		}
		if to := pvc.Annotations[manifest.AnnotationCopiedTo]; to != "" && now.pvcs[to] == nil {
			found = append(found, fmt.Sprintf("disk %s is recorded as copied to %s, which does not exist", name, to))
		}
	}
	return found
}

// clear removes all that the moves have made, with the inverse calls, and returns what is left that garbage collection does not
// remove either.
func (a *arena) clear(ctx context.Context) []string {
	now := a.now(ctx)
	for name, pod := range now.pods {
		if pod.Labels[manifest.LabelRole] == manifest.RoleVM && !slices.Contains([]string{vmOne, vmTwo, "agent-bystander"}, name) {
			a.repeats(ctx, "VMNotFound", "delete_vm", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now.pvcs)) {
		pvc := now.pvcs[name]
		if pvc.Labels[manifest.LabelRole] != manifest.RoleDisk || pvc.Labels[manifest.LabelVM] == "agent-bystander" {
			continue
		}
		if vm := pvc.Labels[manifest.LabelVM]; vm != "" && now.pods[vm] == nil {
			a.repeats(ctx, "VMNotFound", "delete_vm", vm)
		} else if vm != "" {
			a.repeats(ctx, "DiskNotAttached", "detach_disk", vm, name)
		}
		a.repeats(ctx, "DiskNotFound", "delete_disk", name)
	}
	for _, snapshot := range now.snapshots {
		a.must(ctx, "delete_snapshot", snapshot)
	}
	left := func() []string {
		vms := []string{"Pod/" + vmOne, "Secret/" + vmOne, "Pod/" + vmTwo, "Secret/" + vmTwo} // a cluster event has taken one away
		return slices.DeleteFunc(a.inNamespace(ctx), func(object string) bool {
			return slices.Contains(a.others, object) || slices.Contains(vms, object)
		})
	}
	quiet := func(within time.Duration) error {
		return InterceptGomegaFailure(func() {
			Eventually(left).WithContext(ctx).WithTimeout(within).WithPolling(30 * time.Millisecond).Should(BeEmpty())
		})
	}
	if quiet(2*time.Second) == nil {
		return nil
	}
	a.collect(ctx, director.UUID, "-confirm")
	if quiet(15*time.Second) == nil {
		return nil
	}
	return left()
}

// describe says what is known of the arena, for a report.
func (a *arena) describe(now state) string {
	var lines []string
	for name, pvc := range now.pvcs {
		labels, _ := json.Marshal(pvc.Labels)
		annotations, _ := json.Marshal(pvc.Annotations)
		lines = append(lines, fmt.Sprintf("  PVC %s deleted=%t %s %s", name, pvc.DeletionTimestamp != nil, labels, annotations))
	}
	for name, pod := range now.pods {
		lines = append(lines, fmt.Sprintf("  Pod %s uid=%s vm=%s node=%q phase=%s deleted=%t", name, pod.UID, pod.Labels[manifest.LabelVM],
			pod.Spec.NodeName, pod.Status.Phase, pod.DeletionTimestamp != nil))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// explorerEnv is a setting of the explorer from the environment.
func explorerEnv(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}
