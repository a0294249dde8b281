package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// testNodeTaint keeps the VMs of other tests off the nodes of createNode.
var testNodeTaint = corev1.Taint{Key: "test/dedicated", Effect: corev1.TaintEffectNoSchedule}

// createNode creates a node for one test, and waits until it is ready.
func createNode(ctx context.Context, name string) {
	GinkgoHelper()
	_, err := cluster.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test/name": name, corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{testNodeTaint}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Expect(cluster.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
	})
	waitNodeReady(ctx, name)
}

// waitNodeReady waits until a node of createNode is ready.
func waitNodeReady(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		node, err := cluster.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(node.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
		g.Expect(node.Spec.Taints).To(ConsistOf(testNodeTaint))
	}).WithContext(ctx).Should(Succeed())
}

// limitNodePods limits the number of Pods on the node.
func limitNodePods(ctx context.Context, node string, limit int) {
	GinkgoHelper()
	patch := fmt.Appendf(nil, `{"status":{"allocatable":{"pods":"%[1]d"},"capacity":{"pods":"%[1]d"}}}`, limit)
	_, err := cluster.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	Expect(err).NotTo(HaveOccurred())
}

// nodeProperties returns the cloud_properties of a VM on a node of createNode.
func nodeProperties(node string) map[string]any {
	return map[string]any{"node_selector": map[string]any{"test/name": node}, "tolerations": []any{map[string]any{"key": testNodeTaint.Key, "operator": "Exists"}}}
}

// markNodeUnreachable simulates a node that does not respond: its status is unknown, and no Pod of the namespace exits on it.
func (env testEnv) markNodeUnreachable(ctx context.Context, node string) {
	GinkgoHelper()
	pods, err := cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range pods.Items {
		if err := env.annotatePod(ctx, pod.Name, "test/stays", new("yes")); !apierrors.IsNotFound(err) { // it may be about to end
			Expect(err).NotTo(HaveOccurred())
		}
	}
	_, err = cluster.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"metadata":{"annotations":{"test/silent":"yes"}}}`), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","lastTransitionTime":%q}]}}`, unreachableSince)
	_, err = cluster.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	Expect(err).NotTo(HaveOccurred())
}

// markNodeReachable reverts markNodeUnreachable.
func (env testEnv) markNodeReachable(ctx context.Context, node string) {
	GinkgoHelper()
	_, err := cluster.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"metadata":{"annotations":{"test/silent":null}}}`), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
	pods, err := cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range pods.Items {
		if err := env.annotatePod(ctx, pod.Name, "test/stays", nil); !apierrors.IsNotFound(err) {
			Expect(err).NotTo(HaveOccurred())
		}
	}
	waitNodeReady(ctx, node)
}

const unreachableSince = "2026-01-02T03:04:05Z"

// markPodsNotReady sets the status of Pods on an unreachable node, as the node lifecycle controller does.
func (env testEnv) markPodsNotReady(ctx context.Context, pods ...string) {
	GinkgoHelper()
	for _, pod := range pods {
		_, err := cluster.CoreV1().Pods(env.namespace).Patch(ctx, pod, types.StrategicMergePatchType,
			[]byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`), metav1.PatchOptions{}, "status")
		Expect(err).NotTo(HaveOccurred())
	}
}

var _ = Describe("A node that does not respond", long, func() {
	var (
		env            testEnv
		node, vm, disk string
	)
	BeforeEach(func(ctx context.Context) {
		env = newTestEnv(ctx)
		node = "node-" + env.id()
		createNode(ctx, node)
		env.mustCall(ctx, "create_vm", "one", stemcellCID, nodeProperties(node), dynamicNetwork(), []string{}, map[string]any{})
		vm, disk = "agent-one", env.mustCall(ctx, "create_disk", 64, map[string]any{"storage_class": "immediate"}, nil).Text() // for all nodes
		env.mustCall(ctx, "attach_disk", vm, disk)
		env.markNodeUnreachable(ctx, node)
	})

	nameNodeAndRemedy := func() OmegaMatcher {
		return And(ContainSubstring("node "+node+" has not reported since "+unreachableSince),
			ContainSubstring("kubectl taint nodes "+node+" node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"))
	}
	attachmentPod := func(ctx context.Context) *corev1.Pod {
		GinkgoHelper()
		pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return pod
	}

	It("is named in errors, and nothing changes, until the operator marks it as out of service", func(ctx context.Context) {
		env.markPodsNotReady(ctx, vm, disk+"-attachment")
		previous := env.listObjects(ctx)
		version := attachmentPod(ctx).ResourceVersion
		for _, call := range [][]any{{"attach_disk", vm, env.createDisk(ctx)}, {"attach_disk", vm, disk}, {"detach_disk", vm, disk}, {"reboot_vm", vm}} {
			Expect(env.mustFail(ctx, call[0].(string), call[1:]...).Message).To(nameNodeAndRemedy(), "%v", call)
		}
		Expect(attachmentPod(ctx).ResourceVersion).To(Equal(version))
		Expect(env.listObjects(ctx)).To(ContainElements(previous))

		Expect(env.mustFail(ctx, "delete_vm", vm).Message).To(nameNodeAndRemedy())
		Expect(string(env.mustCall(ctx, "has_vm", vm).Result)).To(Equal("true"))
		other := env.createVM(ctx, "two")
		Expect(env.mustFail(ctx, "attach_disk", other, disk).Message).To(ContainSubstring(vm))
		Expect(env.mustFail(ctx, "detach_disk", vm, disk).Message).To(nameNodeAndRemedy())

		_, err := plane.Kubectl(ctx, "taint", "nodes", node, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
		Expect(err).NotTo(HaveOccurred())
		env.mustCall(ctx, "delete_vm", vm)
		Expect(env.listObjects(ctx)).NotTo(ContainElement(ContainSubstring(disk + "-attachment")))
		Expect(env.mustFail(ctx, "detach_disk", vm, disk).Type).To(Equal("Bosh::Clouds::VMNotFound"))
	})

	It("lets BOSH recreate its VM with the disk on another node after the operator marked it as out of service", func(ctx context.Context) {
		env.markPodsNotReady(ctx, vm, disk+"-attachment")
		// Like `bosh cck --resolution recreate_vm`: the agent does not respond, so the director does not detach the disk.
		Expect(env.mustFail(ctx, "delete_vm", vm).Message).To(nameNodeAndRemedy())
		_, err := plane.Kubectl(ctx, "taint", "nodes", node, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
		Expect(err).NotTo(HaveOccurred())
		env.mustCall(ctx, "delete_vm", vm)
		recreated := env.createVM(ctx, "two", disk)
		env.mustCall(ctx, "attach_disk", recreated, disk)
		Expect(string(env.mustCall(ctx, "get_disks", recreated).Result)).To(MatchJSON(`["` + disk + `"]`))
		Expect(attachmentPod(ctx).Spec.NodeName).NotTo(Or(BeEmpty(), Equal(node)))
	})

	It("ends waits that can no longer succeed", func(ctx context.Context) {
		Expect(env.mustFail(ctx, "detach_disk", vm, disk).Message).To(nameNodeAndRemedy())
		Expect(attachmentPod(ctx).DeletionTimestamp).NotTo(BeNil())
		other := env.createVM(ctx, "two")
		Expect(env.mustFail(ctx, "attach_disk", other, disk).Message).To(nameNodeAndRemedy())
		Expect(env.mustFail(ctx, "delete_vm", vm).Message).To(nameNodeAndRemedy())
	})

	It("does not block detach_disk after the operator marked it as out of service", func(ctx context.Context) {
		env.markPodsNotReady(ctx, vm, disk+"-attachment")
		_, err := plane.Kubectl(ctx, "taint", "nodes", node, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
		Expect(err).NotTo(HaveOccurred())
		env.mustCall(ctx, "detach_disk", vm, disk)
		Expect(env.mustFail(ctx, "attach_disk", vm, disk).Message).To(Or(ContainSubstring("out of service; recreate the VM"), ContainSubstring("not found")))
	})
})

var _ = Describe("A volume that is not accessible from the node of the VM", func() {
	It("makes attach_disk fail at once, the error quotes the scheduler, and nothing changes", func(ctx context.Context) {
		env := newTestEnv(ctx)
		disk, vms := env.createDisk(ctx), []string{}
		for _, node := range []string{"node-a", "node-b"} {
			env.mustCall(ctx, "create_vm", node, stemcellCID, map[string]any{"node_selector": map[string]any{"test/name": node}}, dynamicNetwork(), []string{}, map[string]any{})
			vms = append(vms, "agent-"+node)
		}
		env.mustCall(ctx, "attach_disk", vms[0], disk)
		env.detachAndWait(ctx, vms[0], disk)
		previous := env.listObjects(ctx)
		Expect(env.mustFail(ctx, "attach_disk", vms[1], disk).Message).To(And(
			ContainSubstring("cannot attach disk "+disk+" to VM "+vms[1]), ContainSubstring("didn't match PersistentVolume's node affinity")))
		Expect(env.listObjects(ctx)).To(ConsistOf(previous))
		env.mustCall(ctx, "attach_disk", vms[0], disk)
	})

	Describe("with a VM that needs another node", long, func() {
		var (
			env  testEnv
			disk string
		)
		onNode := func(node string) map[string]any {
			return map[string]any{"node_selector": map[string]any{"test/name": node}}
		}
		BeforeEach(func(ctx context.Context) {
			env = newTestEnv(ctx)
			env.mustCall(ctx, "create_vm", "one", stemcellCID, onNode("node-a"), dynamicNetwork(), []string{}, map[string]any{})
			disk = env.createDisk(ctx)
			env.mustCall(ctx, "attach_disk", "agent-one", disk)
			env.mustCall(ctx, "detach_disk", "agent-one", disk)
			env.waitBound(ctx, disk)
		})
		expectError := func(ctx context.Context) {
			GinkgoHelper()
			failed := env.mustFail(ctx, "create_vm", "two", stemcellCID, onNode("node-b"), dynamicNetwork(), []string{disk}, map[string]any{})
			Expect(failed.OkToRetry).To(BeFalse())
			Expect(failed.Message).To(And(ContainSubstring("the node labels test/name=node-b"),
				MatchRegexp(`the volume of disk `+disk+` is accessible only from nodes with \S+ In \[node-a\]`)))
		}

		It("makes create_vm for the disk fail before its timeout, and the error names the disk and its node", func(ctx context.Context) {
			expectError(ctx)
		})

		// The PersistentVolume controller updates the phase after it bound the volume, and after the attachment Pod may be scheduled.
		It("makes create_vm fail directly after the volume was bound, too", func(ctx context.Context) {
			proxy.Reset(func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/persistentvolumeclaims/"+disk) {
					next.ServeHTTP(w, r)
					return
				}
				binding := env.getPVC(ctx, disk)
				binding.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
				binding.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(binding)
			})
			expectError(ctx)
		})
	})
})
