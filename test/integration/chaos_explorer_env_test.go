package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/director"
)

// explorerTestEnv is an environment for concurrent calls. Each call has its own proxy, which can hold the call at any of its requests.
type explorerTestEnv struct {
	testEnv   // for calls that prepare and clean up
	directors []proxiedDirector
	node      string // runs only the first VM

	disk, snapshot    string                 // subjects of the calls
	diskDeleted       bool                   // the director no longer requires the disk
	firstResponse     chan director.Response // of the first call, after it returned
	firstReturned     chan struct{}          // closed when the first call returned
	firstReturnedAt   time.Time              // when the first call returned
	bystanderBaseline string
	baseline          []string // all objects before the setup
}

// proxiedDirector is a director with its own proxy.
type proxiedDirector struct {
	*director.Director
	proxy *apiproxy.Proxy
}

// explorerTimeouts end a call that waits for a held call, long after it did everything else, on a busy machine, too.
var explorerTimeouts = map[string]any{
	"create_vm": "20s", "attach_disk": "20s", "detach_disk": "20s", "delete_vm": "20s", "other": "20s", "request": "15s",
}

// newExplorerTestEnv returns an environment for this number of concurrent calls. done closes its proxies.
func newExplorerTestEnv(ctx context.Context, calls int) (env *explorerTestEnv, done func()) {
	var proxies []*apiproxy.Proxy
	for range calls + 1 {
		proxy, err := apiproxy.NewStrict(plane.Kubeconfig("admin"))
		Expect(err).NotTo(HaveOccurred())
		proxies = append(proxies, proxy)
	}
	env = &explorerTestEnv{testEnv: newTestEnvWithProxy(ctx, proxies[0])}
	for i, proxy := range proxies[1:] {
		proxy.SetToken(env.proxy.Token())
		kubeconfig := fmt.Sprintf("%s-%d.kubeconfig", strings.TrimSuffix(env.Config, ".json"), i)
		config := fmt.Sprintf("%s-%d.json", strings.TrimSuffix(env.Config, ".json"), i)
		Expect(proxy.WriteKubeconfig(kubeconfig, env.namespace)).To(Succeed())
		Expect(director.WriteConfig(config, kubeconfig, env.namespace, map[string]any{"timeouts": explorerTimeouts})).To(Succeed())
		env.directors = append(env.directors, proxiedDirector{Director: &director.Director{CPI: cpiPath, Config: config}, proxy: proxy})
	}
	env.node = "node-" + env.id()
	createNode(ctx, env.node)
	bystander := env.createNamedVM(ctx, "bystander")
	env.mustCall(ctx, "attach_disk", bystander, env.createDisk(ctx))
	env.resetVMs(ctx)
	return env, func() {
		for _, proxy := range proxies {
			proxy.Close()
		}
	}
}

// resetVMs recreates the deleted VMs of the environment, and records the state before the next setup.
func (env *explorerTestEnv) resetVMs(ctx context.Context) {
	for _, vm := range []string{vmOne, vmTwo} {
		pod := nilIfNotFound(cluster.CoreV1().Pods(env.namespace).Get(ctx, vm, metav1.GetOptions{}))
		if pod == nil || pod.DeletionTimestamp != nil {
			env.mustRetry(ctx, "VMNotFound", "delete_vm", vm)
			env.createNamedVM(ctx, strings.TrimPrefix(vm, "agent-"))
			Expect(env.annotatePod(ctx, vm, "test/reboots", new("yes"))).To(Succeed())
		}
	}
	env.disk, env.snapshot, env.diskDeleted = "", "", false
	env.firstReturnedAt = time.Time{}
	env.baseline, env.bystanderBaseline = env.listAllObjects(ctx), env.bystanderState(env.currentState(ctx))
}

// createNamedVM creates a VM and sets its metadata, as a director does after each create_vm. Garbage collection keeps VMs with metadata.
func (env *explorerTestEnv) createNamedVM(ctx context.Context, agent string) string {
	vm := "agent-" + agent
	properties := maps.Clone(env.testEnv.vmProperties)
	if vm == vmOne {
		maps.Copy(properties, nodeProperties(env.node))
	}
	env.mustCall(ctx, "create_vm", agent, stemcellCID, properties, dynamicNetwork(), []string{}, map[string]any{})
	env.mustCall(ctx, "set_vm_metadata", vm, map[string]any{"job": agent})
	return vm
}

// createTestDisk creates the disk for the calls. Its volume is accessible from any node.
func (env *explorerTestEnv) createTestDisk(ctx context.Context) {
	env.disk = env.mustCall(ctx, "create_disk", 64, map[string]any{"storage_class": "immediate"}, nil).Text()
	env.waitBound(ctx, env.disk)
}

// currentState returns the state of the namespace.
func (env *explorerTestEnv) currentState(ctx context.Context) namespaceState {
	s := namespaceState{pods: map[string]*corev1.Pod{}, pvcs: map[string]*corev1.PersistentVolumeClaim{}, snapshots: env.listSnapshots(ctx)}
	pvcs, err := cluster.CoreV1().PersistentVolumeClaims(env.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for i := range pvcs.Items {
		s.pvcs[pvcs.Items[i].Name] = &pvcs.Items[i]
	}
	pods, err := cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for i := range pods.Items {
		s.pods[pods.Items[i].Name] = &pods.Items[i]
	}
	return s
}

// listAllObjects returns all objects that calls create, sorted.
func (env *explorerTestEnv) listAllObjects(ctx context.Context) []string {
	objects := env.listObjects(ctx)
	for _, snapshot := range env.listSnapshots(ctx) {
		objects = append(objects, "VolumeSnapshot/"+snapshot)
	}
	slices.Sort(objects)
	return objects
}

// bystanderState describes the bystander VM and its disk, which no call may change.
func (env *explorerTestEnv) bystanderState(now namespaceState) string {
	var descriptions []string
	for name, pod := range now.pods {
		if name == "agent-bystander" || pod.Labels[manifest.LabelVM] == "agent-bystander" {
			descriptions = append(descriptions, fmt.Sprint(name, pod.UID, pod.Status.PodIP, pod.DeletionTimestamp, pod.Labels, pod.Annotations))
		}
	}
	for name, pvc := range now.pvcs {
		if pvc.Labels[manifest.LabelVM] == "agent-bystander" {
			descriptions = append(descriptions, fmt.Sprint(name, pvc.UID, pvc.Labels, pvc.Annotations, pvc.DeletionTimestamp))
		}
	}
	slices.Sort(descriptions)
	return fmt.Sprint(descriptions)
}

// invariantViolations returns the violations in this state of rules that always apply.
func (env *explorerTestEnv) invariantViolations(now namespaceState) (violations []string) {
	for disk := range now.pvcs {
		if writers := now.writers(disk); len(writers) > 1 {
			violations = append(violations, fmt.Sprintf("disk %s can be written to by %v", disk, writers))
		}
	}
	if pvc := now.pvcs[env.disk]; env.disk != "" && !env.diskDeleted && (pvc == nil || pvc.DeletionTimestamp != nil) {
		violations = append(violations, "the data is lost: the disk does not exist")
	}
	if current := env.bystanderState(now); current != env.bystanderBaseline {
		violations = append(violations, "the bystander changed: "+current+", before: "+env.bystanderBaseline)
	}
	return violations
}

// consistencyErrors returns the inconsistencies in this state, in which no call is running and only calls changed objects. If lost is true,
// the attachment Pod of an attached disk may be missing.
func (env *explorerTestEnv) consistencyErrors(now namespaceState, lost bool) (inconsistencies []string) {
	for name, pvc := range now.pvcs {
		owner, ok := manifest.DiskPVC{PVC: pvc}.Owner()
		pod := now.pods[manifest.AttachmentName(name)]
		switch {
		case pvc.Labels[manifest.LabelRole] != manifest.RoleDisk:
			continue
		case !ok:
			inconsistencies = append(inconsistencies, fmt.Sprintf("the owner record of disk %s is damaged: %v", name, owner))
		case lost && owner.VM != "" && pod == nil:
		case owner.VM != "" && now.pods[owner.VM] != nil && (pod == nil || pod.UID != owner.Pod):
			inconsistencies = append(inconsistencies, fmt.Sprintf("disk %s is recorded as attached to %s, but has no attachment", name, owner.VM))
		case owner.VM == "" && env.isLate(pod):
		case owner.VM == "" && pod != nil && pod.DeletionTimestamp == nil:
			inconsistencies = append(inconsistencies, fmt.Sprintf("disk %s has an attachment, but is not recorded as attached", name))
		}
	}
	return inconsistencies
}

// isLate reports whether a request of the first call created the Pod after that call had run out of time and returned. Such a Pod never
// starts, because it still has its gate.
func (env *explorerTestEnv) isLate(pod *corev1.Pod) bool {
	return pod != nil && len(pod.Spec.SchedulingGates) > 0 && !env.firstReturnedAt.IsZero() &&
		!pod.CreationTimestamp.Time.Before(env.firstReturnedAt.Truncate(time.Second)) // creationTimestamp has whole seconds
}

// cleanup deletes the objects created by the calls, with the inverse calls. It returns the objects that remain even after a garbage
// collection.
func (env *explorerTestEnv) cleanup(ctx context.Context) []string {
	now := env.currentState(ctx)
	for name, pod := range now.pods {
		if pod.Labels[manifest.LabelRole] == manifest.RoleVM && !slices.Contains([]string{vmOne, vmTwo, "agent-bystander"}, name) {
			env.mustRetry(ctx, "VMNotFound", "delete_vm", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now.pvcs)) {
		pvc := now.pvcs[name]
		if pvc.Labels[manifest.LabelRole] != manifest.RoleDisk || pvc.Labels[manifest.LabelVM] == "agent-bystander" {
			continue
		}
		if pvc.DeletionTimestamp != nil {
			env.retainVolume(ctx, pvc)
			if now.pods[manifest.AttachmentName(name)] == nil { // nothing protects the PVC
				Eventually(func() any { return env.currentState(ctx).pvcs[name] }).WithContext(ctx).Should(BeNil())
				continue
			}
		}
		vm := pvc.Labels[manifest.LabelVM]
		switch pod := now.pods[vm]; {
		case vm == "":
		case pod == nil || pod.DeletionTimestamp != nil: // a lost node that is back removes its deleted Pods
			env.mustRetry(ctx, "VMNotFound", "delete_vm", vm)
		default:
			env.mustRetry(ctx, "DiskNotAttached", "detach_disk", vm, name)
		}
		env.mustRetry(ctx, "DiskNotFound", "delete_disk", name)
	}
	for _, snapshot := range now.snapshots {
		env.mustCall(ctx, "delete_snapshot", snapshot)
	}
	remaining := func() []string {
		vms := []string{"Pod/" + vmOne, "Secret/" + vmOne, "Pod/" + vmTwo, "Secret/" + vmTwo} // the baseline may lack them after a cluster event
		return slices.DeleteFunc(env.listAllObjects(ctx), func(object string) bool {
			return slices.Contains(env.baseline, object) || slices.Contains(vms, object)
		})
	}
	waitClean := func(timeout time.Duration) error {
		return InterceptGomegaFailure(func() {
			Eventually(remaining).WithContext(ctx).WithTimeout(timeout).WithPolling(200 * time.Millisecond).Should(BeEmpty())
		})
	}
	if waitClean(2*time.Second) == nil {
		return nil
	}
	env.runCollect(ctx, director.UUID, "-confirm")
	if waitClean(15*time.Second) == nil {
		return nil
	}
	return remaining()
}

// retainVolume retains the volume of a PVC that another client deleted, until the end of the spec: otherwise, no call releases the disk.
func (env *explorerTestEnv) retainVolume(ctx context.Context, pvc *corev1.PersistentVolumeClaim) {
	succeedUnlessGone := Or(Succeed(), MatchError(apierrors.IsNotFound, "not found"))
	Expect(patchReclaimPolicy(ctx, pvc.Spec.VolumeName, "Retain")).To(succeedUnlessGone)
	DeferCleanup(func(ctx context.Context) {
		Expect(cluster.CoreV1().PersistentVolumes().Delete(ctx, pvc.Spec.VolumeName, metav1.DeleteOptions{})).To(succeedUnlessGone)
	})
}

// describe formats the state of the namespace for a report.
func (env *explorerTestEnv) describe(now namespaceState) string {
	var lines []string
	for name, pvc := range now.pvcs {
		labels, _ := json.Marshal(pvc.Labels)
		annotations, _ := json.Marshal(pvc.Annotations)
		lines = append(lines, fmt.Sprintf("  PVC %s deleted=%t %s %s", name, pvc.DeletionTimestamp != nil, labels, annotations))
	}
	for name, pod := range now.pods {
		lines = append(lines, fmt.Sprintf("  Pod %s uid=%s vm=%s node=%q phase=%s gated=%t deleted=%t", name, pod.UID, pod.Labels[manifest.LabelVM],
			pod.Spec.NodeName, pod.Status.Phase, len(pod.Spec.SchedulingGates) > 0, pod.DeletionTimestamp != nil))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
