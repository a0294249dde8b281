package integration

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ownTaint keeps the machines of other tests off a test's own node.
var ownTaint = corev1.Taint{Key: "test/own", Effect: corev1.TaintEffectNoSchedule}

// bringNode makes a node of its own for a test, and waits until it is ready.
func bringNode(ctx context.Context, name string) {
	GinkgoHelper()
	_, err := cluster.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test/name": name, corev1.LabelOSStable: "linux"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{ownTaint}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Expect(cluster.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
	})
	awaitNode(ctx, name)
}

// awaitNode waits until a test's own node is ready.
func awaitNode(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		node, err := cluster.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(node.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
		g.Expect(node.Spec.Taints).To(ConsistOf(ownTaint))
	}).WithContext(ctx).Should(Succeed())
}

// limitPods has the test's own node take no more Pods than these, which it has already.
func limitPods(ctx context.Context, node string, most int) {
	GinkgoHelper()
	slots := fmt.Appendf(nil, `{"status":{"allocatable":{"pods":"%[1]d"},"capacity":{"pods":"%[1]d"}}}`, most)
	_, err := cluster.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, slots, metav1.PatchOptions{}, "status")
	Expect(err).NotTo(HaveOccurred())
}

// on are the cloud_properties of a machine on a test's own node.
func on(node string) map[string]any {
	return map[string]any{"node_selector": map[string]any{"test/name": node}, "tolerations": []any{map[string]any{"key": ownTaint.Key, "operator": "Exists"}}}
}

// silence makes the node one that was not heard of any more: no Pod of the namespace ends on it.
func (w world) silence(ctx context.Context, node string) {
	GinkgoHelper()
	pods, err := cluster.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range pods.Items {
		Expect(w.annotate(ctx, pod.Name, "test/stays", new("yes"))).To(Succeed())
	}
	_, err = cluster.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"metadata":{"annotations":{"test/silent":"yes"}}}`), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","lastTransitionTime":%q}]}}`, silentSince)
	_, err = cluster.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	Expect(err).NotTo(HaveOccurred())
}

// revive makes a silent node answer again.
func (w world) revive(ctx context.Context, node string) {
	GinkgoHelper()
	_, err := cluster.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"metadata":{"annotations":{"test/silent":null}}}`), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
	pods, err := cluster.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range pods.Items {
		if err := w.annotate(ctx, pod.Name, "test/stays", nil); !apierrors.IsNotFound(err) {
			Expect(err).NotTo(HaveOccurred())
		}
	}
	awaitNode(ctx, node)
}

const silentSince = "2026-01-02T03:04:05Z"

// declareNotReady does with the Pods of a silent node what the node controller does.
func (w world) declareNotReady(ctx context.Context, pods ...string) {
	GinkgoHelper()
	for _, pod := range pods {
		_, err := cluster.CoreV1().Pods(w.namespace).Patch(ctx, pod, types.StrategicMergePatchType,
			[]byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`), metav1.PatchOptions{}, "status")
		Expect(err).NotTo(HaveOccurred())
	}
}

var _ = Describe("A node that does not answer", func() {
	var (
		w              world
		node, vm, disk string
	)
	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx)
		w.Director = w.withTimeouts(map[string]any{"attach_disk": "2m", "detach_disk": "2m", "delete_vm": "2m"})
		node = "node-" + strings.TrimPrefix(w.namespace, "world-")
		bringNode(ctx, node)
		w.must(ctx, "create_vm", "one", stemcellCID, on(node), onDynamic(), []string{}, map[string]any{})
		vm, disk = "agent-one", w.createDisk(ctx)
		w.must(ctx, "attach_disk", vm, disk)
		w.silence(ctx, node)
	})

	saysWhatToDo := func() OmegaMatcher {
		return And(ContainSubstring("node "+node+" has not answered since "+silentSince),
			ContainSubstring("kubectl taint nodes "+node+" node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"))
	}
	attachment := func(ctx context.Context) *corev1.Pod {
		GinkgoHelper()
		pod, err := cluster.CoreV1().Pods(w.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return pod
	}

	It("is said to be the reason, and nothing is changed, until the operator says that it is off", func(ctx context.Context) {
		w.declareNotReady(ctx, vm, disk+"-attachment")
		before := w.objects(ctx)
		version := attachment(ctx).ResourceVersion
		for _, call := range [][]any{{"attach_disk", vm, w.createDisk(ctx)}, {"attach_disk", vm, disk}, {"detach_disk", vm, disk}, {"reboot_vm", vm}} {
			Expect(w.fails(ctx, call[0].(string), call[1:]...).Message).To(saysWhatToDo(), "%v", call)
		}
		Expect(attachment(ctx).ResourceVersion).To(Equal(version))
		Expect(w.objects(ctx)).To(ContainElements(before))

		Expect(w.fails(ctx, "delete_vm", vm).Message).To(saysWhatToDo())
		Expect(string(w.must(ctx, "has_vm", vm).Result)).To(Equal("true"))
		other := w.createVM(ctx, "two")
		Expect(w.fails(ctx, "attach_disk", other, disk).Message).To(ContainSubstring(vm))
		Expect(w.fails(ctx, "detach_disk", vm, disk).Message).To(saysWhatToDo())

		_, err := plane.Kubectl(ctx, "taint", "nodes", node, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
		Expect(err).NotTo(HaveOccurred())
		w.must(ctx, "delete_vm", vm)
		Expect(w.objects(ctx)).NotTo(ContainElement(ContainSubstring(disk + "-attachment")))
		Expect(w.fails(ctx, "detach_disk", vm, disk).Type).To(Equal("Bosh::Clouds::VMNotFound"))
	})

	It("ends a wait that it cannot help any more", func(ctx context.Context) {
		Expect(w.fails(ctx, "detach_disk", vm, disk).Message).To(saysWhatToDo())
		Expect(attachment(ctx).DeletionTimestamp).NotTo(BeNil())
		other := w.createVM(ctx, "two")
		Expect(w.fails(ctx, "attach_disk", other, disk).Message).To(saysWhatToDo())
		Expect(w.fails(ctx, "delete_vm", vm).Message).To(saysWhatToDo())
	})

	It("keeps no disk from being detached when the operator has said that it is off", func(ctx context.Context) {
		w.declareNotReady(ctx, vm, disk+"-attachment")
		_, err := plane.Kubectl(ctx, "taint", "nodes", node, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
		Expect(err).NotTo(HaveOccurred())
		w.must(ctx, "detach_disk", vm, disk)
		Expect(w.fails(ctx, "attach_disk", vm, disk).Message).To(Or(ContainSubstring("out of service; recreate it"), ContainSubstring("not found")))
	})
})

var _ = Describe("A volume that cannot be had on the machine's node", func() {
	It("is explained in the scheduler's words, at once, and nothing is changed", func(ctx context.Context) {
		w := newWorld(ctx)
		disk, machines := w.createDisk(ctx), []string{}
		for _, node := range []string{"node-a", "node-b"} {
			w.must(ctx, "create_vm", node, stemcellCID, map[string]any{"node_selector": map[string]any{"test/name": node}}, onDynamic(), []string{}, map[string]any{})
			machines = append(machines, "agent-"+node)
		}
		w.must(ctx, "attach_disk", machines[0], disk)
		w.must(ctx, "detach_disk", machines[0], disk)
		before := w.objects(ctx)
		Expect(w.fails(ctx, "attach_disk", machines[1], disk).Message).To(And(
			ContainSubstring("disk "+disk+" cannot be attached to VM "+machines[1]), ContainSubstring("didn't match PersistentVolume's node affinity")))
		Expect(w.objects(ctx)).To(ConsistOf(before))
		w.must(ctx, "attach_disk", machines[0], disk)
	})
})
